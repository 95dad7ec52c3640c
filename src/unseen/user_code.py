"""Failures in a user's own code, such as a task: named by file, line and exception."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path

LONGEST = 500  # characters of an exception's message

_OURS = Path(__file__).resolve().parent
_INSTALLED = [
    Path(folder).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (folder := sysconfig.get_path(name))
]
_own: set[Path] = set()  # files and folders


def register(module: str) -> None:
    """Count the package of an imported module as the user's own, also if it is installed."""
    top = sys.modules[module.partition(".")[0]]
    places = list(getattr(top, "__path__", ())) or [getattr(top, "__file__", None)]
    _own.update(Path(place).resolve() for place in places if place)


def describe_failure(error: BaseException) -> str | None:
    """Return where the user's own code failed and how; None if none of it was running."""
    place = find_place(error)
    if place is not None:
        return f"{place}: {describe_error(error)}"
    # Python replaces a StopIteration that leaves a generator.
    return describe_failure(error.__cause__) if error.__cause__ is not None else None


def find_place(error: BaseException) -> str | None:
    """Return file, line and function of the user's own code that was running last."""
    if isinstance(error, SyntaxError) and error.filename and _is_own(error.filename):
        return f"{error.filename}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame[0])]
    return (
        f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else None
    )


def describe_error(error: BaseException) -> str:
    """Return the type of an exception and its message, on one line."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # a class of the user's may fail here too
        message = ""
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _is_own(filename: str) -> bool:
    if filename.startswith("<"):  # <string>, <frozen importlib._bootstrap>
        return False
    path = Path(filename).resolve()
    if path.is_relative_to(_OURS):
        return False
    if any(path.is_relative_to(folder) for folder in _own):
        return True
    return not any(path.is_relative_to(folder) for folder in _INSTALLED)
