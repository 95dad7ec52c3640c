"""The decreasing curve, the combination and the bound of errors, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from unseen.functional.accuracy_curve import (
    TOWARDS_EQUAL,
    Curve,
    combination_weights,
    conformal_bound,
    folds,
    nearest_distances,
)


def test_curve_never_rises_and_is_flat_beyond_its_ends():
    curve = Curve.fit(np.array([0.0, 1.0, 2.0]), np.array([0.9, 0.5, 0.7]))
    # 0.5 and 0.7 rise: their mean
    assert curve(np.array([-1.0, 0.0, 1.0, 1.5, 9.0])) == pytest.approx([0.9, 0.9, 0.6, 0.6, 0.6])


def test_weights_have_the_least_squared_error_of_all_combinations():
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=60)
    predictions = np.stack([truth + rng.normal(0, s, 60) for s in (0.05, 0.1, 0.5)], 1)
    weights = combination_weights(predictions, truth)

    def loss(w):
        ridge = TOWARDS_EQUAL * len(truth) * ((w - 1 / 3) ** 2).sum()
        return ((predictions @ w - truth) ** 2).sum() + ridge

    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1}
    slow = minimize(loss, np.full(3, 1 / 3), bounds=[(0, 1)] * 3, constraints=simplex).x
    assert weights == pytest.approx(slow, abs=2e-3)
    assert weights.sum() == pytest.approx(1) and weights[0] > weights[2] >= 0


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
