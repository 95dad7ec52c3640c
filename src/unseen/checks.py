"""What a setting may be, checked where it is taken: the error names it, what was expected and what came."""

from __future__ import annotations

import math
import sys
from typing import Any

from unseen.errors import UnseenError

LARGEST = sys.float_info.max
LARGEST_WHOLE = 2**53  # from there on a float, which progress and rates are, skips some


def check_positive(name: str, value: float) -> float:
    """The value, if it is a finite number above zero."""
    if check_number(name, value) <= 0:
        raise UnseenError(f"{name} must be a number above 0, not {value!r}")
    return value


def check_number(name: str, value: float, least: float = -math.inf) -> float:
    """The value, if it is a finite number of at least that size."""
    # A whole number may be too large for a float.
    real = not isinstance(value, bool) and isinstance(value, int | float) and abs(value) <= LARGEST
    if not real or value < least:
        wanted = "a finite number" + (f" of at least {least:g}" if least > -math.inf else "")
        raise UnseenError(f"{name} must be {wanted}, not {value!r}")
    return value


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> float:
    """The value, if it lies between 0 and 1; whether the ends themselves will do is the caller's to say."""
    if not (0 < check_number(name, value) < 1 or (zero and value == 0) or (one and value == 1)):
        raise UnseenError(f"{name} must lie between 0 and 1, not {value!r}")
    return value


def check_int(name: str, value: int, least: int) -> int:
    """The value, if it is a whole number of at least that size."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_WHOLE:
        raise UnseenError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """The value, if it is one of the choices."""
    if value not in choices:
        raise UnseenError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")
    return value
