"""The decreasing curve, the combination and the bound of errors, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from unseen.functional.accuracy_curve import (
    LEAST_ERROR,
    Curve,
    conformal_bound,
    folds,
    inverse_error_weights,
    nearest_distances,
    weighted_median,
)


def test_curve_never_rises_and_is_flat_beyond_its_ends():
    curve = Curve.fit(np.array([0.0, 1.0, 2.0]), np.array([0.9, 0.5, 0.7]))
    # 0.5 and 0.7 rise: their mean
    assert curve(np.array([-1.0, 0.0, 1.0, 1.5, 9.0])) == pytest.approx([0.9, 0.9, 0.6, 0.6, 0.6])


def test_weights_are_inverse_to_the_errors():
    truth = np.array([0.2, 0.8])
    predictions = np.array([[0.3, 0.2 + 0.2, 0.2], [0.9, 0.8 - 0.2, 0.8]])
    weights = inverse_error_weights(predictions, truth)
    expected = np.array([10, 5, 1 / LEAST_ERROR])  # the third makes no error
    assert weights == pytest.approx(expected / expected.sum())


def test_weighted_median_is_that_of_repeated_values():
    rng = np.random.default_rng(0)
    values, counts = rng.uniform(size=(20, 5)), np.array([1, 4, 2, 3, 1])
    slow = [np.sort(np.repeat(row, counts))[(counts.sum() - 1) // 2] for row in values]
    assert weighted_median(values, counts / 11) == pytest.approx(slow)
    assert weighted_median(values[0], counts / 11) == pytest.approx(slow[0])


def test_weighted_median_ignores_how_far_a_minority_errs():
    weights = np.array([0.2, 0.4, 0.4])
    assert weighted_median(np.array([0.0, 0.5, 0.6]), weights) == 0.5
    assert weighted_median(np.array([-9.0, 0.5, 0.6]), weights) == 0.5


def test_bound_is_that_of_conformal_prediction():
    errors = np.arange(39, dtype=float)
    assert conformal_bound(errors, 0.9) == 35.0  # 40 * 0.9: the 36th
    assert conformal_bound(errors[:5], 0.9) == 4.0


def test_a_fold_leaves_out_every_point_with_the_kind():
    found = folds([(), ("a",), ("b",), ("a", "b")])
    assert found["a"].tolist() == [False, True, False, True]
    assert found["b"].tolist() == [False, False, True, True]


def test_nearest_distance():
    points, others = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [3.0, 5.0]])
    assert nearest_distances(points, others).tolist() == [1.0, 1.0]
