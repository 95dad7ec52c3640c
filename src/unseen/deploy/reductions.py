"""Scores of mean features, in numpy: what `Detector.reduce` and `reduce_mean` compute in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kind = Literal["mean", "relative_deviation", "nuclear_norm", "mano"]
MANO_POWER = 4


@dataclass(frozen=True)
class Reduction:
    """The score of features or of their mean, (..., F) -> (...)."""

    kind: Kind
    source_mean: Array | None = None  # (F,), of a relative deviation

    def __call__(self, mean: Array, variance: Array | None = None) -> Array:
        """Return the score; the variance of the mean corrects a score of absolute deviations."""
        if self.kind == "relative_deviation":
            assert self.source_mean is not None
            return _relative_deviation(mean, self.source_mean.astype(mean.dtype), variance)
        if self.kind == "nuclear_norm":
            return 1 - _nuclear_norm(mean)
        if self.kind == "mano":
            return np.asarray(1 - np.maximum(mean[..., 0], 0) ** (1 / MANO_POWER))
        return np.asarray(mean.mean(-1))


def _relative_deviation(mean: Array, source_mean: Array, variance: Array | None) -> Array:
    deviation = np.abs(mean - source_mean)
    if variance is not None:
        deviation = np.sqrt(np.maximum(deviation**2 - variance, 0))
    least = np.finfo(source_mean.dtype).tiny
    return np.asarray((deviation / np.maximum(source_mean, least)).mean(-1))


def _nuclear_norm(moments: Array) -> Array:
    classes = round(moments.shape[-1] ** 0.5)
    matrix = moments.astype(np.float64).reshape(*moments.shape[:-1], classes, classes)
    values = np.linalg.eigvalsh((matrix + np.swapaxes(matrix, -1, -2)) / 2)
    norm = np.sqrt(np.maximum(values, 0)).sum(-1) / classes**0.5
    return np.asarray(norm, dtype=moments.dtype)


def log_odds(probabilities: Array) -> Array:
    """Return log(p / (1 - p)), of probabilities clipped to 1e-9 from both ends."""
    clipped = np.clip(probabilities.astype(np.float64), 1e-9, 1 - 1e-9)
    return np.asarray(np.log(clipped / (1 - clipped)))


def from_log_odds(odds: Array) -> Array:
    """Return the probabilities of log odds."""
    return np.asarray(1 / (1 + np.exp(-odds)))


def shift_to_mean(probabilities: Array, mean: float) -> Array:
    """Add one number to the log odds so that the probabilities have the mean, (N,) -> (N,)."""
    odds = log_odds(probabilities)
    return from_log_odds(odds + shift_of(odds, np.ones(len(odds)), mean))


def shift_of(odds: Array, weights: Array, mean: float) -> float:
    """Return what to add to log odds so that their probabilities have the weighted mean."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        below = np.average(from_log_odds(odds + middle), weights=weights) < mean
        low, high = (middle, high) if below else (low, middle)
    return low
