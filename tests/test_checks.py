"""Checks of single values."""

from __future__ import annotations

import math

import pytest

from unseen import UnseenError
from unseen.checks import check_choice, check_fraction, check_int, check_number, check_positive

HUGE = 10**400  # too large for a float


@pytest.mark.parametrize("value", [True, "1", None, math.nan, math.inf, -math.inf, HUGE, -HUGE])
def test_number_that_is_not_finite_is_refused(value):
    with pytest.raises(UnseenError, match="beta must be a finite number"):
        check_number("beta", value)


def test_bounds_are_inclusive_or_exclusive():
    assert (
        check_number("beta", 0, 0) == 0
        and check_number("beta", -3.5) == -3.5
        and check_positive("lr", 1) == 1
    )
    assert (
        check_fraction("rho", 0.5) == 0.5
        and check_fraction("rho", 0, zero=True) == 0
        and check_fraction("rho", 1, one=True) == 1
    )
    for value in (0, 1, -0.1, 1.1):
        with pytest.raises(UnseenError, match="rho must lie between 0 and 1"):
            check_fraction("rho", value)
    with pytest.raises(UnseenError, match="beta must be a finite number of at least 0, not -1"):
        check_number("beta", -1, 0)
    with pytest.raises(UnseenError, match="lr must be a number above 0"):
        check_positive("lr", 0.0)


@pytest.mark.parametrize("value", [0, 1.0, True, "2", HUGE])
def test_value_that_is_no_integer_in_range_is_refused(value):
    assert check_int("steps", 1, 1) == 1
    with pytest.raises(UnseenError, match="steps must be an integer of at least 1"):
        check_int("steps", value, 1)


def test_unknown_choice_lists_the_choices():
    assert check_choice("order", 2, (1, 2)) == 2
    with pytest.raises(UnseenError, match="order must be one of 1, 2, not 3"):
        check_choice("order", 3, (1, 2))
