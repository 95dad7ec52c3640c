"""Label-free accuracy estimation.

Held-out source data under synthetic shifts gives pairs of domain score and accuracy. A decreasing
curve is fitted to them; its errors for kinds of shift that it was not fitted to give the interval.
No target data is used. Average confidence, with its errors under the same shifts, and ATC are
estimated beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.checks import check_fraction, check_int
from unseen.detection.detector import Detector, detector_of
from unseen.detection.observation import Observation, observe
from unseen.detection.synthetic_shifts import Shift, Shifts, shifts_for, with_blends
from unseen.errors import UnseenError
from unseen.files import read_json, write_json
from unseen.functional.accuracy_curve import (
    Floats,
    conformal_range,
    decreasing_curve,
    leave_one_kind_out_errors,
    nearest_indices,
)
from unseen.functional.bootstrap import bias_corrected_score, bootstrap_interval
from unseen.functional.confidence import atc_threshold, average_thresholded_confidence
from unseen.nn.batch import Batch
from unseen.nn.inputs import inputs

FORMAT = 3  # raise it with every change of the saved table or of the shifts
SAMPLES = 300  # under each shift: an accuracy is then known to about 3 points
BLENDS = 30  # of several kinds of shift
NEIGHBOURS = 40  # errors at a similar score that make the interval
FILE = "accuracy.json"  # in a run's folder
LEVEL = 0.9
RESAMPLES = 400


class AccuracyInterval(NamedTuple):
    """An estimated accuracy with its interval."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool  # beyond every synthetic shift: the accuracy may be as low as chance


class Estimate(NamedTuple):
    """The accuracy estimated from the domain score, and by two baselines."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool
    average_confidence: AccuracyInterval
    atc: float
    score: float  # bias-corrected
    n: int


@dataclass(frozen=True)
class ShiftPoint:
    """Held-out source data under one shift."""

    kinds: tuple[str, ...]  # none, one, or those blended
    score: float
    uncertainty: float
    accuracy: float


@dataclass
class AccuracyEstimator:
    """Fit it once with held-out source data, save it as JSON, apply it to data without labels."""

    detector: str  # name of the detector whose score it reads
    classes: int
    confidence_threshold: float  # of ATC
    samples: int
    points: list[ShiftPoint] = field(repr=False)

    @classmethod
    def fit(
        cls,
        net: Any,
        held_out: Iterable[Any],
        *,
        shifts: Shifts | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
    ) -> AccuracyEstimator:
        """Fit to the score and accuracy of held-out source batches (x, y) under synthetic shifts.

        Args:
            net: a method, or a detector.
            shifts: {kind: [function(x, generator) -> x, ...]} of at least three kinds. By default
                corruptions for images; noise and dropped features for other inputs.
        """
        detector = detector_of(net)
        ignore = getattr(detector.net, "ignore_label", -100)
        x, y = _random_samples(held_out, check_int("samples", samples, 1), seed)
        kinds = shifts_for(x, label_maps=y.dim() > 1) if shifts is None else shifts
        if len(kinds) < 3:
            raise UnseenError(
                f"an accuracy estimate needs at least 3 kinds of shifts, not {len(kinds)}"
            )
        clean = observe(detector, x, y, ignore)
        points = [_point(detector, (), clean)]
        for names, shift in with_blends(kinds, BLENDS, seed):
            shifted = observe(detector, _apply(shift, x, names, seed), y, ignore)
            points.append(_point(detector, names, shifted))
        threshold = atc_threshold(clean.confidence, clean.correct)
        return cls(detector.name, clean.classes, threshold, len(y), points)

    def matches(self, net: Any) -> bool:
        """Return whether the estimator was fitted with the detector of this method."""
        return self.detector == detector_of(net).name

    def estimate(self, net: Any, x: Any, level: float = LEVEL) -> Estimate:
        """Estimate the accuracy on x, samples of one domain without labels."""
        return self.estimate_from(net, observe(detector_of(net), inputs(x)), level)

    def estimate_from(self, net: Any, observation: Observation, level: float = LEVEL) -> Estimate:
        """Estimate the accuracy from an observation of the samples."""
        detector = detector_of(net)
        if not self.matches(detector):
            raise UnseenError(
                f"this estimator was fitted with the score {self.detector}, the method's is "
                f"{detector.name}: fit it again"
            )
        check_fraction("the level of an interval", level)
        features, uncertainty = observation.features, observation.uncertainty
        score = bias_corrected_score(features, detector.reduce, RESAMPLES)
        if not math.isfinite(score):
            raise UnseenError(
                f"the score of these samples is {score}: look for NaN in the inputs or the weights"
            )
        low, high = bootstrap_interval(features, detector.reduce, level, RESAMPLES)
        plain = float(detector.reduce(features.mean(0)))
        by_score = self.at_score(score, low + score - plain, high + score - plain, level)
        mean = partial(torch.mean, dim=-1)
        ends = bootstrap_interval(uncertainty, mean, level, RESAMPLES)
        by_confidence = self.at_uncertainty(float(uncertainty.mean()), *ends, level)
        atc = average_thresholded_confidence(observation.confidence, self.confidence_threshold)
        return Estimate(*by_score, by_confidence, atc, score, len(features))

    def at_score(
        self, score: float, low: float, high: float, level: float = LEVEL
    ) -> AccuracyInterval:
        """Return the accuracy at a score that is known to lie between low and high."""
        scores, accuracies, errors_at, errors = self._curve
        at = np.array([score, high, low])
        middle, worse, better = decreasing_curve(scores, accuracies, at).tolist()
        near = errors[nearest_indices(errors_at, score, NEIGHBOURS)]
        beyond = bool(score > scores.max())
        return self._interval(middle, worse, better, near, level, beyond)

    def at_uncertainty(
        self, uncertainty: float, low: float, high: float, level: float = LEVEL
    ) -> AccuracyInterval:
        """Return average confidence, with its errors under shifts of similar uncertainty."""
        known = np.array([p.uncertainty for p in self.points], dtype=np.float64)
        errors = np.array([p.accuracy for p in self.points], dtype=np.float64) - (1 - known)
        near = errors[nearest_indices(known, uncertainty, NEIGHBOURS)]
        beyond = bool(uncertainty > known.max())
        return self._interval(1 - uncertainty, 1 - high, 1 - low, near, level, beyond)

    def _interval(
        self,
        accuracy: float,
        worse: float,
        better: float,
        errors: Floats,
        level: float,
        extrapolates: bool,
    ) -> AccuracyInterval:
        below, above = conformal_range(errors, level)
        low, high = min(accuracy, worse + below), max(accuracy, better + above)
        if extrapolates:
            low = min(low, 1 / self.classes)
        return AccuracyInterval(accuracy, max(0.0, low), min(1.0, high), extrapolates)

    @cached_property
    def _curve(self) -> tuple[Floats, Floats, Floats, Floats]:
        scores = np.array([p.score for p in self.points], dtype=np.float64)
        accuracies = np.array([p.accuracy for p in self.points], dtype=np.float64)
        kinds = [p.kinds for p in self.points]
        return scores, accuracies, *leave_one_kind_out_errors(kinds, scores, accuracies)

    def save(self, path: str | Path) -> None:
        """Write the estimator to a JSON file."""
        write_json(Path(path), {"format": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: str | Path) -> AccuracyEstimator:
        """Read what `save` wrote."""
        saved = _migrate(read_json(Path(path)))
        if saved.get("format") != FORMAT:
            raise UnseenError(f"{path} is not an accuracy estimator of this version: fit it again")
        try:
            estimator = cls(
                str(saved["detector"]),
                int(saved["classes"]),
                float(saved["confidence_threshold"]),
                int(saved["samples"]),
                [_read_point(p) for p in saved["points"]],
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UnseenError(
                f"{path} is not an accuracy estimator: {reason}; fit it again"
            ) from error
        if not estimator._is_sound():
            raise UnseenError(
                f"{path}: points must be finite, accuracies in 0..1, and of at least 3 kinds of "
                "shifts; fit it again"
            )
        return estimator

    def _is_sound(self) -> bool:
        points = self.points
        return (
            all(
                math.isfinite(p.score) and 0 <= p.uncertainty <= 1 and 0 <= p.accuracy <= 1
                for p in points
            )
            and not math.isnan(self.confidence_threshold)
            and len({p.kinds for p in points}) > 3
            and len({kind for p in points for kind in p.kinds}) >= 3
            and self.classes >= 1
        )


def estimate_accuracy(
    net: Any, x: Any, estimator: AccuracyEstimator, level: float = LEVEL
) -> Estimate:
    """Estimate the accuracy on x, samples of one domain without labels, with its interval."""
    return estimator.estimate(net, x, level)


def _migrate(saved: dict[str, Any]) -> dict[str, Any]:
    """Translate a file of format 2, which 0.1 wrote."""
    if saved.get("format") != 2 or not isinstance(saved.get("points"), list):
        return saved
    at_embedding = saved.get("score_at") == "embedding"
    return {
        **saved,
        "format": 3,
        "detector": "embedding_shift" if at_embedding else saved.get("score_name"),
        "confidence_threshold": saved.get("certainty_threshold"),
    }


def _read_point(point: dict[str, Any]) -> ShiftPoint:
    uncertainty = point["doubt"] if "doubt" in point else point["uncertainty"]  # of format 2
    numbers = float(point["score"]), float(uncertainty), float(point["accuracy"])
    return ShiftPoint(tuple(map(str, point["kinds"])), *numbers)


def _point(detector: Detector, kinds: tuple[str, ...], seen: Observation) -> ShiftPoint:
    score = bias_corrected_score(seen.features, detector.reduce, RESAMPLES)
    uncertainty, accuracy = float(seen.uncertainty.mean()), float(seen.correct.double().mean())
    if not (math.isfinite(score) and math.isfinite(uncertainty)):
        raise UnseenError(
            f"the score under {' + '.join(kinds) or 'no shift'} is {score}: look for NaN in the "
            "held-out data or the weights"
        )
    return ShiftPoint(kinds, score, uncertainty, accuracy)


def _apply(
    shift: Shift, x: tuple[Tensor, ...], kinds: tuple[str, ...], seed: int
) -> tuple[Tensor, ...]:
    shifted = inputs(shift(x, torch.Generator().manual_seed(seed)))
    if [t.shape for t in shifted] != [t.shape for t in x]:
        raise UnseenError(f"the shift {' + '.join(kinds)} must keep the shapes of its inputs")
    return shifted


def _random_samples(
    held_out: Iterable[Any], samples: int, seed: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return random samples of the held-out data, which may be sorted by class."""
    batches = [Batch.of(pair) for pair in held_out]
    if not batches or not sum(len(b.y) for b in batches):
        raise UnseenError(
            "held_out is empty: give batches (x, y) of source data that was not trained on"
        )
    x = tuple(torch.cat(parts).cpu() for parts in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches]).cpu()
    index = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:samples]
    return tuple(t[index] for t in x), y[index]
