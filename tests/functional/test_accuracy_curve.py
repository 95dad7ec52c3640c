"""The decreasing curve and the range of its errors, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unseen.functional.accuracy_curve import (
    conformal_range,
    decreasing_curve,
    leave_one_kind_out_errors,
)


def test_curve_never_rises_and_is_flat_beyond_its_ends():
    scores, accuracies = np.array([0.0, 1.0, 2.0]), np.array([0.9, 0.5, 0.7])
    curve = decreasing_curve(scores, accuracies, np.array([-1.0, 0.0, 1.0, 1.5, 9.0]))
    assert curve == pytest.approx([0.9, 0.9, 0.6, 0.6, 0.6])  # 0.5 and 0.7 rise: their mean


def test_errors_come_from_curves_without_the_kind():
    kinds = [(), ("a",), ("b",), ("a", "b")]
    scores, accuracies = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.8, 0.3, 0.1])
    at, errors = leave_one_kind_out_errors(kinds, scores, accuracies)
    # Without a: (0, 1.0), (2, 0.3) predict 0.65 at 1 and 0.3 at 3.
    # Without b: (0, 1.0), (1, 0.8) predict 0.8 at 2 and at 3.
    assert at.tolist() == [1.0, 3.0, 2.0, 3.0]
    assert errors == pytest.approx([0.15, -0.2, -0.5, -0.7])


def test_range_is_that_of_conformal_prediction():
    errors = np.arange(39, dtype=float)
    assert conformal_range(errors, 0.9) == (1.0, 37.0)  # 40 * 0.05 = 2: the second from either end
    assert conformal_range(errors[:10], 0.9) == (0.0, 9.0)
