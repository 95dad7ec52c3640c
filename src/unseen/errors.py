"""The exception for errors that the caller can correct, and the one for signals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UnseenError(Exception):
    """Invalid input; the message names the place, what was expected and the remedy.

    The command line prints the message and exits with code 2.
    """


class Stopped(BaseException):
    """A signal, such as SIGTERM, asks the process to end. Like KeyboardInterrupt, not an error."""

    def __init__(self, signal_name: str, exit_code: int) -> None:
        super().__init__(signal_name)
        self.signal_name, self.exit_code = signal_name, exit_code


class SampleError(UnseenError):
    """Invalid data; `sample` is the position in its batch, for which a reader gives the name."""

    def __init__(self, sample: int, problem: str) -> None:
        super().__init__(f"sample index {sample} of the batch: {problem}")
        self.sample, self.problem = sample, problem


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Begin the message of an UnseenError with the place, such as a file, that it comes from."""
    try:
        yield
    except UnseenError as error:
        raise UnseenError(f"{place}: {error}") from error
