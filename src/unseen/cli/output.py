"""Where results go: one strict JSON document on stdout, whatever else prints."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from cyclopts import CycloptsError

from unseen.errors import Stopped, UnseenError
from unseen.user_code import describe_failure, find_place

DEBUG = "UNSEEN_DEBUG"  # set it to see the traceback of an error
FALSE = ("no", "n", "0", "false", "f")  # as cyclopts reads them

_results: TextIO | None = None  # the real stdout while everything else that prints goes to stderr


def wants_json(tokens: Sequence[str]) -> bool:
    """Return whether the command line asks for JSON: --json, --json=true."""
    words = list(tokens)
    options = words[: words.index("--")] if "--" in words else words
    answers = [word.partition("=")[2] for word in options if word.partition("=")[0] == "--json"]
    return bool(answers) and answers[-1].lower() not in FALSE


@contextlib.contextmanager
def stdout_for_results_only(*, for_good: bool = False) -> Iterator[None]:
    """Redirect stdout to stderr for everything but `emit`, below Python too.

    A user's task may print, by C code or a child process as well; stdout must still hold one JSON
    document and nothing else. `for_good` leaves it so, for what prints when the process ends.
    """
    global _results
    python_stdout, copy = sys.stdout, _copy_of_stdout()
    _results = results = python_stdout if copy is None else os.fdopen(copy, "w")
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        if copy is not None:
            results.flush()
        if not for_good:
            if copy is not None:
                _flush_buffers(sys.__stdout__)
                os.dup2(copy, 1)
                results.close()
            sys.stdout = python_stdout
        _results = None


def _copy_of_stdout() -> int | None:
    """Point descriptor 1 to stderr; return a copy of it, or None if sys.stdout is not there."""
    try:
        if sys.stdout.fileno() != 1:
            return None
        _flush_buffers(sys.stdout)
        with open(os.devnull, "wb") as nowhere:
            # Without a stderr, descriptor 2 is free, or that of another file.
            other = 2 if sys.__stderr__ is not None else nowhere.fileno()
            copy = os.dup(1)
            os.dup2(other, 1)
        return copy
    except (OSError, ValueError, AttributeError):  # a StringIO, or a closed stdout
        return None


def _flush_buffers(stream: TextIO | None) -> None:
    """Write what Python and the C library still hold for stdout."""
    if stream is not None:
        stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


def results() -> TextIO:
    """Return where results go: stdout, also while everything else that prints goes to stderr."""
    return _results or sys.stdout


def emit(result: dict[str, Any], as_json: bool) -> bool:
    """Print the result as strict JSON if `as_json` is set, and return `as_json`."""
    if as_json:
        text = json.dumps(strict(result), indent=2, allow_nan=False)
        print(text, file=results(), flush=True)
    return as_json


def strict(value: Any) -> Any:
    """Return a value as strict JSON has it: null for NaN and infinity, text for other objects."""
    if isinstance(value, Mapping):
        return {str(name): strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if callable(getattr(value, "tolist", None)):  # numpy and torch
        return strict(value.tolist())
    return str(value)


@contextlib.contextmanager
def own_code_failures_named() -> Iterator[None]:
    """Turn an exception in a user's own code into an UnseenError with its file and line."""
    try:
        yield
    except (CycloptsError, KeyboardInterrupt, Stopped):
        raise
    except UnseenError as error:
        place = None if error.__cause__ is None else find_place(error.__cause__)
        _show_traceback()
        if place is None or place in str(error):
            raise
        raise UnseenError(f"{error} ({place})") from error
    except BaseException as error:  # also SystemExit: a task that ends the process is an error
        problem = describe_failure(error)
        if problem is None:
            raise
        _show_traceback()
        raise UnseenError(
            f"your own code failed: {problem}; set {DEBUG}=1 to see the traceback"
        ) from error


def _show_traceback() -> None:
    if os.environ.get(DEBUG):
        traceback.print_exc()
