"""Messages to stderr, and warnings of old names. Imports no torch."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def say(text: str) -> None:
    """Print a message to stderr."""
    print(f"unseen: {text}", file=sys.stderr)


@contextlib.contextmanager
def show_deprecations() -> Iterator[None]:
    """Print deprecated settings as messages; Python hides these warnings by default."""

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, DeprecationWarning):
            say(f"warning: {message}")
        else:
            original(message, category, *rest)

    original = warnings.showwarning
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=DeprecationWarning, module=r"unseen\b")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def deprecated(command: Callable[..., None], old: str, new: str) -> Callable[..., None]:
    """Return `command` with a warning on stderr that its name has changed."""

    @functools.wraps(command)
    def renamed(*args: Any, **options: Any) -> None:
        say(f"warning: `unseen {old}` is now `unseen {new}`; the old name will go in version 0.3")
        command(*args, **options)

    return renamed
