"""Label-free accuracy estimation from one pass.

Held-out source data under synthetic shifts gives points: the scores of every signal (one_pass.py)
and the accuracy. For each signal a decreasing curve is fitted to them. The estimate combines the
curves and the correctness probability; its weights have the least error on kinds of shift that the
curves were not fitted to. The same errors give the interval. No target data is used.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseen.checks import check_fraction, check_int, check_path, check_type
from unseen.detection.accuracy_file import digest_of, estimator_bytes, read_estimator
from unseen.detection.accuracy_points import OnPoint, collect_points, fit_correctness
from unseen.detection.combined import Combined, fit_combined
from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.detection.detector import Detector, detector_of
from unseen.detection.null_accuracy import NullAccuracy, fit_null_accuracy
from unseen.detection.one_pass import Moments, Observation, OnePass
from unseen.detection.sampling import random_samples
from unseen.detection.synthetic_shifts import Shifts
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.functional.accuracy_model import accuracy_with_interval
from unseen.functional.confidence import shift_to_mean
from unseen.nn.calls import bind
from unseen.nn.inputs import check_labels, inputs

log = logging.getLogger("unseen")

SAMPLES = 250  # under each shift: an accuracy is then known to about 3 points
SOURCE_SAMPLES = 2000
FILE = "accuracy.safetensors"  # in a run's folder
LEVEL = 0.9


class Estimate(NamedTuple):
    """An estimated accuracy with its interval, and what single signals say."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool  # further from every synthetic shift than those are from each other
    n: int
    signals: dict[str, float]  # accuracy by each signal alone
    scores: dict[str, float]  # of the signals; higher is worse


@dataclass
class AccuracyEstimator:
    """Fit it once with held-out source data, save it, apply it to data without labels."""

    one_pass: OnePass
    combined: Combined
    null: NullAccuracy
    source_accuracy: float
    classes: int
    samples: int
    shifts: int
    weights: str  # digest of the model's weights
    _versions: tuple[tuple[int, int], ...] = ()  # of the tensors that had these weights

    @classmethod
    def fit(
        cls,
        net: Any,
        held_out: Iterable[Any],
        *,
        shifts: Shifts | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
        on_point: OnPoint = lambda done, total: None,
    ) -> AccuracyEstimator:
        """Fit to the signals and accuracy of held-out source batches (x, y) under shifts.

        Args:
            net: a method, or its detector.
            shifts: {kind: [function(x, generator) -> x, ...]} of at least three kinds, where x
                is a tuple of inputs. By default corruptions for images; noise and dropped features
                for other inputs.
            samples: held-out samples that are shifted.
            on_point: called after each shift with the number done and the number of all.
        """
        method = method_of(net)
        check_classifies(method)
        ignore = getattr(method, "ignore_label", -100)
        source = random_samples(held_out, "held_out", SOURCE_SAMPLES, check_int("seed", seed))
        source = source._replace(x=bind(method.model, source.x))
        logits = method.predict(source.rows(slice(1)).x)
        check_labels(logits, source.y[:1].to(logits.device), ignore)
        classes = logits.shape[1]
        one_pass = OnePass(method, classes)
        seen = one_pass.calibrate(source, ignore)
        if seen.accuracy < 1.1 / classes:
            log.warning(
                "the accuracy on held-out source data is %.1f %%, near chance (%.1f %%): verdicts "
                "compare with that; train longer, or raise lr",
                100 * seen.accuracy,
                100 / classes,
            )
        few = min(check_int("samples", samples, 1), len(source.y))
        shifted = source.rows(slice(few))
        clean = seen.take(torch.arange(few))
        points = collect_points(one_pass, shifted, clean, shifts, ignore, on_point=on_point)
        without_kind = fit_correctness(one_pass, points, seen)
        source_scores = _scores(one_pass, seen.moments)
        combined = fit_combined(
            one_pass.signals, points, without_kind, source_scores, seen.accuracy
        )
        null = fit_null_accuracy(combined, one_pass.signals, seen)
        shifted_sets, digest = len(points) - 1, digest_of(method.model)
        return cls(one_pass, combined, null, seen.accuracy, classes, few, shifted_sets, digest)

    def estimate(self, x: Any, level: float = LEVEL) -> Estimate:
        """Estimate the accuracy on x, samples of one domain without labels."""
        check_fraction("the level of an interval", level)
        return self.estimate_from(self.one_pass.observe(inputs(x)), level)

    def estimate_from(self, observation: Observation, level: float = LEVEL) -> Estimate:
        """Estimate the accuracy from an observation of the samples."""
        return self.estimate_moments(observation.moments, level)

    def estimate_moments(self, moments: dict[str, Moments], level: float = LEVEL) -> Estimate:
        """Estimate the accuracy from the moments of every signal's features."""
        check_fraction("the level of an interval", level)
        if not self._has_its_weights():
            raise UnseenError(
                "the weights have changed since this accuracy estimator was fitted: fit it again"
            )
        scores = _scores(self.one_pass, moments)
        if bad := [name for name, value in scores.items() if not math.isfinite(value)]:
            raise UnseenError(
                f"the score {bad[0]} of these samples is {scores[bad[0]]}: look for NaN in the "
                "inputs or the weights"
            )
        n = next(iter(moments.values())).n
        found = accuracy_with_interval(self.combined, self.null, self.classes, scores, n, level)
        signals = self.one_pass.signals
        alone = {name: self._alone(name, scores[name]) for name in signals}
        return Estimate(*found, n, alone, scores)

    def _alone(self, name: str, score: float) -> float:
        detector = self.one_pass.signals[name]
        own = detector.accuracy(score) if isinstance(detector, ConfidenceDetector) else None
        return self.combined.alone(name, score, own)

    def correctness(self, x: Any) -> Tensor:
        """Return the probability that each prediction is correct, (N,).

        Their mean is the estimated accuracy on x, samples of one domain.
        """
        return self.correctness_from(self.one_pass.observe(inputs(x)))

    def correctness_from(self, observation: Observation) -> Tensor:
        """Return the probabilities of `correctness` from an observation of the samples."""
        raw = 1 - observation.features[self.one_pass.correctness.name].squeeze(1)
        return shift_to_mean(raw, self.estimate_from(observation).accuracy)

    def matches(self, net: Any) -> bool:
        """Return whether the estimator was fitted with this method and its weights of now."""
        return self.one_pass.net is method_of(net) and self._has_its_weights()

    def _has_its_weights(self) -> bool:
        """Return whether the weights are those of the fit; a digest is made if one was written."""
        model = self.one_pass.net.model
        tensors = (*model.parameters(), *model.buffers())
        versions = tuple((id(t), 0 if t.is_inference() else t._version) for t in tensors)
        if versions != self._versions:
            if digest_of(model) != self.weights:
                return False
            self._versions = versions
        return True

    def save(self, path: str | Path) -> None:
        """Write the estimator to a .safetensors file."""
        write_atomically(check_path("path", path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes."""
        return estimator_bytes(self)

    @classmethod
    def load(cls, path: str | Path, net: Any) -> AccuracyEstimator:
        """Read what `save` wrote, for the same method with the same weights."""
        return cls(**read_estimator(check_path("path", path), method_of(net)))


def method_of(net: Any) -> Any:
    """Return the method itself, or that of a detector."""
    return detector_of(net).net if isinstance(net, Detector) else (detector_of(net) and net)


def estimate_accuracy(
    net: Any, x: Any, estimator: AccuracyEstimator, level: float = LEVEL
) -> Estimate:
    """Estimate the accuracy on x, samples of one domain without labels, with its interval."""
    check_type("estimator", estimator, AccuracyEstimator, "an AccuracyEstimator")
    if not estimator.matches(net):
        raise UnseenError("this estimator was fitted with another method: fit it again")
    return estimator.estimate(x, level)


def _scores(one_pass: OnePass, moments: dict[str, Moments]) -> dict[str, float]:
    return {name: moments[name].score(detector) for name, detector in one_pass.signals.items()}


def check_classifies(net: Any) -> None:
    """Raise unless the method predicts classes: accuracy is defined for them only."""
    objective = getattr(net, "objective", None)
    if objective is not None and not objective.classifies:
        raise UnseenError(
            f"accuracy is not defined for loss {objective.name}: use net.verdict(x), which judges "
            "by the score, or net.domain_score(x)"
        )
