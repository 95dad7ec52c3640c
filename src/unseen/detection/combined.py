"""The combination of the signals: curves, weights, errors and what they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unseen.detection.accuracy_points import MIXTURES, Point, with_mixtures
from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.detection.detector import Detector
from unseen.functional.accuracy_curve import (
    Curve,
    Floats,
    conformal_bound,
    folds,
    inverse_error_weights,
    nearest_distances,
    nearest_indices,
    weighted_median,
)

DIRECT = ("cot", "cott", "correctness")  # their own estimates enter beside their curves
SOURCE_WEIGHT = 0.1  # of the source, among the points that a curve is fitted to
NEIGHBOURS = 80  # errors at a similar accuracy that make the interval


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

        Beyond, the prediction shrinks towards DoC.
        """
        row = np.array([scores[name] for name in self.names])
        accuracy = float(self.accuracies(row))
        place = (_transformed(self.names, row[None]) - self.centre) / self.spread
        distance = float(nearest_distances(place, self.places)[0])
        stretch = max(1.0, distance / self.reach)
        if stretch == 1:
            return accuracy, False, 1.0
        doc = float(np.clip(self.doc[0] - self.doc[1] * scores["doc"], 0, 1))
        return accuracy / stretch + doc * (1 - 1 / stretch), True, stretch

    def interval(self, accuracy: float, level: float, stretch: float) -> tuple[float, float]:
        """Return the range of accuracies that errors at a similar prediction leave room for.

        It is symmetric: the kinds of shift left out err to one side, a new domain may to the other.
        """
        near = self.errors[nearest_indices(self.predicted, accuracy, NEIGHBOURS)]
        half = stretch * conformal_bound(np.abs(near), level)
        return accuracy - half, accuracy + half

    def alone(self, name: str, score: float, detector: Detector) -> float:
        """Return the accuracy that a signal alone states: its paper's estimate, else its curve."""
        own = detector.accuracy(score) if isinstance(detector, ConfidenceDetector) else None
        if own is None:
            return float(self.curves[self.names.index(name)](np.array(score)))
        return min(1.0, max(0.0, own))


def fit_combined(
    signals: Mapping[str, Detector],
    points: Sequence[Point],
    correctness: Mapping[str, Floats],
    source_scores: Mapping[str, float],
    source_accuracy: float,
) -> Combined:
    """Fit curves to all points, and weights to the errors of curves without a kind of shift.

    Args:
        correctness: scores of the points by fits of the correctness without each kind.
        source_scores: of all held-out source samples.
    """
    names = tuple(signals)
    mixed = with_mixtures(list(points))
    scores = np.array([[p.moments[n].score(signals[n]) for n in names] for p in mixed])
    accuracies = np.array([p.accuracy for p in mixed])
    source = np.array([source_scores[name] for name in names])
    direct = np.array([_line(signals[name]) for name in DIRECT])
    doc = np.array(_line(signals["doc"]))

    def fitted(chosen: NDArray[np.bool_], at: Floats) -> Combined:
        part, goals = at[chosen], accuracies[chosen]
        weights = np.ones(len(part))
        weights[0] = max(1.0, SOURCE_WEIGHT * len(part))
        curves = [Curve.fit(part[:, j], goals, weights) for j in range(len(names))]
        zeros = np.zeros(len(names) + len(DIRECT))
        empty = np.zeros(0)
        made = Combined(
            names, curves, zeros, zeros, empty, empty, part, empty, empty, 1.0, direct, doc
        )
        made.offsets = source_accuracy - made.parts(source)
        return made

    column = names.index("correctness")
    predictions, goals = [], []
    for kind, out in folds([p.kinds for p in mixed]).items():
        left = scores.copy()
        left[:, column] = _mixed_scores(correctness[kind], points)
        predictions.append(fitted(~out, left).parts(left[out]))
        goals.append(accuracies[out])
    stacked, truth = np.concatenate(predictions), np.concatenate(goals)
    combined = fitted(np.ones(len(mixed), dtype=bool), scores)
    combined.weights = inverse_error_weights(stacked, truth)
    combined.predicted = np.clip(weighted_median(stacked, combined.weights), 0, 1)
    combined.errors = truth - combined.predicted
    _cover(combined, scores, [p.kinds for p in mixed])
    return combined


def _mixed_scores(scores: Floats, points: Sequence[Point]) -> Floats:
    """Return the scores of the points and of their mixtures; a mean is mixed linearly."""
    mixtures = [
        (1 - share) * scores[0] + share * score for score in scores[1:] for share in MIXTURES
    ]
    return np.concatenate([scores, np.array(mixtures)])


def _cover(combined: Combined, scores: Floats, kinds: Sequence[Sequence[str]]) -> None:
    """Set places and reach: how far a kind of shift is, at most, from the points without it."""
    placed = _transformed(combined.names, scores)
    combined.centre, combined.spread = placed.mean(0), placed.std(0) + 1e-9
    combined.places = (placed - combined.centre) / combined.spread
    distances = [
        nearest_distances(combined.places[out], combined.places[~out]).max()
        for out in folds(kinds).values()
    ]
    combined.reach = max(1e-6, float(np.max(distances)))


def _transformed(names: Sequence[str], scores: Floats) -> Floats:
    """Return scores on a scale for distances: noise scores span orders of magnitude."""
    result: Floats = scores.copy()
    for j, name in enumerate(names):
        if name in ("sigma", "embedding_shift"):
            result[:, j] = np.log(np.maximum(scores[:, j], 1e-3))
    return result


def _line(detector: Detector) -> tuple[float, float]:
    """Return offset and slope of an estimate that is linear in its score."""
    assert isinstance(detector, ConfidenceDetector)
    at_0, at_1 = detector.accuracy(0.0), detector.accuracy(1.0)
    assert at_0 is not None and at_1 is not None
    return at_0, at_0 - at_1
