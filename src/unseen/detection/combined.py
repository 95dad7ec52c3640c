"""Fit the combination of the signals: curves, weights, errors and what they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from unseen.detection.accuracy_points import MIXTURES, Point, with_mixtures
from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.detection.detector import Detector
from unseen.functional.accuracy_curve import (
    Curve,
    Floats,
    folds,
    inverse_error_weights,
    nearest_distances,
    weighted_median,
)
from unseen.functional.accuracy_model import DIRECT as DIRECT
from unseen.functional.accuracy_model import Combined as Combined
from unseen.functional.accuracy_model import on_distance_scale

SOURCE_WEIGHT = 0.1  # of the source, among the points that a curve is fitted to


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
    placed = on_distance_scale(combined.names, scores)
    combined.centre, combined.spread = placed.mean(0), placed.std(0) + 1e-9
    combined.places = (placed - combined.centre) / combined.spread
    distances = [
        nearest_distances(combined.places[out], combined.places[~out]).max()
        for out in folds(kinds).values()
    ]
    combined.reach = max(1e-6, float(np.max(distances)))


def _line(detector: Detector) -> tuple[float, float]:
    """Return offset and slope of an estimate that is linear in its score."""
    assert isinstance(detector, ConfidenceDetector)
    at_0, at_1 = detector.accuracy(0.0), detector.accuracy(1.0)
    assert at_0 is not None and at_1 is not None
    return at_0, at_0 - at_1
