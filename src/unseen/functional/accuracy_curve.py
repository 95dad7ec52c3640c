"""Accuracy as a decreasing function of a score, with the errors of its predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def decreasing_curve(scores: Floats, accuracies: Floats, at: Floats) -> Floats:
    """Fit a decreasing curve by isotonic regression and evaluate it; it is flat beyond its ends."""
    from sklearn.isotonic import IsotonicRegression  # slow to import

    curve = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(scores, accuracies)
    return np.asarray(curve.predict(at), dtype=np.float64)


def leave_one_kind_out_errors(
    kinds: Sequence[Sequence[str]], scores: Floats, accuracies: Floats
) -> tuple[Floats, Floats]:
    """Return scores, and true minus predicted accuracy there by curves without that kind of shift.

    `kinds` are the kinds of shift in each point; a point with several kinds counts for each.
    """
    at, errors = [], []
    for kind in sorted({kind for group in kinds for kind in group}):
        out = np.array([kind in group for group in kinds])
        at.append(scores[out])
        curve = decreasing_curve(scores[~out], accuracies[~out], scores[out])
        errors.append(accuracies[out] - curve)
    return np.concatenate(at), np.concatenate(errors)


def conformal_range(errors: Floats, level: float) -> tuple[float, float]:
    """Return the range that holds a new exchangeable error with at least that probability.

    With few errors it is their full range.
    """
    ordered, m = np.sort(errors), len(errors)
    outside = math.floor((m + 1) * (1 - level) / 2 + 1e-9)  # 40 * 0.05 is 2 despite rounding
    first = max(0, outside - 1)
    return float(ordered[first]), float(ordered[m - 1 - first])


def nearest_indices(values: Floats, value: float, count: int) -> NDArray[np.int64]:
    """Return the indices of the `count` closest values."""
    return np.argsort(np.abs(values - value), kind="stable")[:count]
