"""Accuracy from the scores of the signals, with its interval. Needs numpy alone.

`unseen.detection.combined` and `unseen.detection.null_accuracy` fit these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unseen.functional.accuracy_curve import (
    Curve,
    Floats,
    conformal_bound,
    nearest_distances,
    nearest_indices,
    weighted_median,
)

DIRECT = ("cot", "cott", "correctness")  # their own estimates enter beside their curves
NEIGHBOURS = 80  # errors at a similar accuracy that make the interval
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5)


@dataclass
class Combined:
    """Predicts accuracy from the scores of the signals.

    Every part predicts the source's accuracy at the source: the difference there is subtracted.
    """

    names: tuple[str, ...]  # of the signals
    curves: list[Curve]
    weights: Floats  # (K,) of the curves, then of the DIRECT estimates
    offsets: Floats  # (K,)
    predicted: Floats  # (L,) of kinds that were left out
    errors: Floats  # (L,) true minus predicted
    places: Floats  # (M, S) of the points, in standard deviations
    centre: Floats  # (S,)
    spread: Floats  # (S,)
    reach: float  # distance to the nearest place up to which a domain counts as covered
    direct: Floats  # (D, 2) of the DIRECT estimates: offset and slope, offset - slope * score
    doc: Floats  # (2,) offset and slope of DoC

    def parts(self, scores: Floats) -> Floats:
        """Return the prediction of every part, (..., S) -> (..., K)."""
        curves = [curve(scores[..., j]) for j, curve in enumerate(self.curves)]
        chosen = [self.names.index(name) for name in DIRECT]
        direct = self.direct[:, 0] - self.direct[:, 1] * scores[..., chosen]
        return np.concatenate([np.stack(curves, -1), direct], -1) + self.offsets

    def accuracies(self, scores: Floats) -> Floats:
        """Return the combined prediction, (..., S) -> (...)."""
        return np.clip(weighted_median(self.parts(scores), self.weights), 0, 1)

    def predict(self, scores: Mapping[str, float]) -> tuple[float, bool, float]:
        """Return accuracy, whether the domain is beyond what was covered, and by what factor.

        Beyond, the prediction shrinks towards DoC if that is lower: far from the source a model
        may be confident for no reason.
        """
        row = np.array([scores[name] for name in self.names])
        accuracy = float(self.accuracies(row))
        place = (on_distance_scale(self.names, row[None]) - self.centre) / self.spread
        distance = float(nearest_distances(place, self.places)[0])
        stretch = max(1.0, distance / self.reach)
        if stretch == 1:
            return accuracy, False, 1.0
        doc = float(np.clip(self.doc[0] - self.doc[1] * scores["doc"], 0, 1))
        lower = min(accuracy, doc)
        return accuracy / stretch + lower * (1 - 1 / stretch), True, stretch

    def interval(self, accuracy: float, level: float, stretch: float) -> tuple[float, float]:
        """Return the range of accuracies that errors at a similar prediction leave room for.

        It is symmetric: the kinds of shift left out err to one side, a new domain may to the other.
        """
        near = self.errors[nearest_indices(self.predicted, accuracy, NEIGHBOURS)]
        half = stretch * conformal_bound(np.abs(near), level)
        return accuracy - half, accuracy + half

    def alone(self, name: str, score: float, own: float | None) -> float:
        """Return the accuracy that a signal alone states: its paper's estimate, else its curve."""
        if own is None:
            return float(self.curves[self.names.index(name)](np.array(score)))
        return min(1.0, max(0.0, own))


@dataclass
class NullAccuracy:
    """Quantiles of the estimated accuracy of source batches, minus the source's accuracy."""

    quantiles: Floats  # (SIZES, RATES), not positive

    def margin(self, n: int, rate: float) -> float:
        """Return how far the estimate of a source batch of n falls below the source's accuracy."""
        row = self._row(n)
        return float(-np.interp(np.log(rate), np.log(RATES), row))

    def p_value(self, n: int, difference: float) -> float:
        """Return the probability that a source batch of n is estimated at most this much above.

        `difference` is the estimate minus the source's accuracy. The least probability is that of
        the table.
        """
        row = self._row(n)
        if difference >= row[-1]:
            return 1.0
        return float(np.exp(np.interp(difference, row, np.log(RATES))))

    def spread(self, n: int) -> float:
        """Return how far the estimate scatters at 90 % for n samples."""
        return self.margin(n, 0.05)

    def _row(self, n: int) -> Floats:
        """Return the quantiles of the largest tabulated size up to n, which scatter most."""
        index = max(i for i, size in enumerate(SIZES) if size <= max(1, n))
        return np.maximum.accumulate(self.quantiles[index])


class EstimatedAccuracy(NamedTuple):
    """An estimated accuracy with its interval."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool  # further from every synthetic shift than those are from each other


def accuracy_with_interval(
    combined: Combined,
    null: NullAccuracy,
    classes: int,
    scores: Mapping[str, float],
    n: int,
    level: float,
) -> EstimatedAccuracy:
    """Estimate the accuracy on n samples from the scores of the signals."""
    accuracy, extrapolates, stretch = combined.predict(scores)
    low, high = combined.interval(accuracy, level, stretch)
    # The binomial sampling error of the accuracy on n samples, at 90 %.
    binomial = 1.645 * math.sqrt(max(accuracy * (1 - accuracy), 0) / n)
    sampling = math.hypot(null.spread(n), binomial)
    low = accuracy - math.hypot(accuracy - low, sampling)
    high = accuracy + math.hypot(high - accuracy, sampling)
    if extrapolates:
        low = min(low, 1 / classes)
    return EstimatedAccuracy(accuracy, max(0.0, low), min(1.0, high), extrapolates)


def on_distance_scale(names: Sequence[str], scores: Floats) -> Floats:
    """Return scores on a scale for distances: noise scores span orders of magnitude."""
    result: Floats = scores.copy()
    for j, name in enumerate(names):
        if name in ("sigma", "embedding_shift"):
            result[:, j] = np.log(np.maximum(scores[:, j], 1e-3))
    return result
