"""Checks of single values; the error names the setting, what was expected and what came."""

from __future__ import annotations

import math
import sys
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError

LARGEST = sys.float_info.max
LARGEST_INT = 2**53  # beyond it, floats such as progress and learning rates skip integers


def check_positive(name: str, value: float) -> float:
    """Return the value if it is a finite number above zero."""
    if check_number(name, value) <= 0:
        raise UnseenError(f"{name} must be a number above 0, not {value!r}")
    return value


def check_number(name: str, value: float, least: float = -math.inf) -> float:
    """Return the value if it is a finite number of at least `least`."""
    # An int may be too large for a float.
    finite = (
        not isinstance(value, bool) and isinstance(value, int | float) and abs(value) <= LARGEST
    )
    if not finite or value < least:
        expected = "a finite number" + (f" of at least {least:g}" if least > -math.inf else "")
        raise UnseenError(f"{name} must be {expected}, not {value!r}")
    return value


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> float:
    """Return the value if it lies in (0, 1); `zero` and `one` include the ends."""
    if not (0 < check_number(name, value) < 1 or (zero and value == 0) or (one and value == 1)):
        raise UnseenError(f"{name} must lie between 0 and 1, not {value!r}")
    return value


def check_int(name: str, value: int, least: int = -LARGEST_INT) -> int:
    """Return the value if it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_INT:
        expected = "an integer" + (f" of at least {least}" if least > -LARGEST_INT else "")
        raise UnseenError(f"{name} must be {expected}, not {value!r}")
    return value


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return the value if it is one of the choices."""
    if value not in choices:
        raise UnseenError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")
    return value


def check_path(name: str, value: str | PathLike[str]) -> Path:
    """Return the value as a path if it is one."""
    if not isinstance(value, str | PathLike):
        raise UnseenError(f"{name} must be a path, not {value!r}")
    return Path(value)


def check_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> Any:
    """Return the value if it is of that type; `expected` describes it."""
    if not isinstance(value, kind):
        raise UnseenError(f"{name} must be {expected}, not {value!r}")
    return value


_OLD_NAMES = {
    "number": check_number,
    "positive": check_positive,
    "share": check_fraction,
    "whole": check_int,
    "one_of": check_choice,
}


def __getattr__(name: str) -> Any:
    """Look up the names of version 0.1, to be removed in 0.3."""
    if name not in _OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _OLD_NAMES[name]
    warnings.warn(
        f"unseen.checks.{name} is now {new.__name__}; the old name will be removed in 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return new
