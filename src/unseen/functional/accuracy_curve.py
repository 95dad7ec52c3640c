"""Accuracy as a decreasing function of scores, and how to combine several such functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_ERROR = 1e-3  # of a part, so that none has all the weight


@dataclass(frozen=True)
class Curve:
    """A decreasing curve, linear between its knots and flat beyond them."""

    scores: Floats  # increasing
    accuracies: Floats  # decreasing

    @classmethod
    def fit(cls, scores: Floats, accuracies: Floats, weights: Floats | None = None) -> Curve:
        """Fit by isotonic regression."""
        from sklearn.isotonic import IsotonicRegression  # slow to import

        model = IsotonicRegression(increasing=False).fit(scores, accuracies, weights)
        return cls(
            np.asarray(model.X_thresholds_, dtype=np.float64),
            np.asarray(model.y_thresholds_, dtype=np.float64),
        )

    def __call__(self, scores: Floats) -> Floats:
        return np.interp(scores, self.scores, self.accuracies)


def inverse_error_weights(predictions: Floats, accuracies: Floats) -> Floats:
    """Return weights in inverse proportion to the mean absolute errors, (M, K), (M,) -> (K,)."""
    errors = np.abs(predictions - accuracies[:, None]).mean(0)
    weights = 1 / np.maximum(errors, LEAST_ERROR)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Return the value that half of the weight does not exceed, (..., K), (K,) -> (...).

    It increases with each value, and follows no single one that errs far from the others.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    reached = weights[order].cumsum(-1) >= 0.5 * weights.sum() - 1e-12
    index = np.take_along_axis(order, reached.argmax(-1)[..., None], -1)
    return np.asarray(np.take_along_axis(values, index, -1)[..., 0], dtype=np.float64)


def conformal_bound(errors: Floats, level: float) -> float:
    """Return the bound that a new exchangeable error keeps with at least that probability.

    With few errors it is the largest of them.
    """
    rank = math.ceil((len(errors) + 1) * level - 1e-9)  # 0.9 * 10 is 9 despite rounding
    return float(np.sort(errors)[min(rank, len(errors)) - 1])


def nearest_indices(values: Floats, value: float, count: int) -> NDArray[np.int64]:
    """Return the indices of the `count` closest values."""
    return np.argsort(np.abs(values - value), kind="stable")[:count]


def nearest_distances(points: Floats, others: Floats) -> Floats:
    """Return the distance of each point to the nearest of the others, (M, K), (L, K) -> (M,)."""
    nearest = [np.square(others - point).sum(1).min() for point in points]
    return np.sqrt(np.array(nearest, dtype=np.float64))


def folds(kinds: Sequence[Sequence[str]]) -> dict[str, NDArray[np.bool_]]:
    """Return, for each kind of shift, which points contain it."""
    names = sorted({kind for group in kinds for kind in group})
    return {name: np.array([name in group for group in kinds]) for name in names}
