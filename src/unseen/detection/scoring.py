"""The detector and the accuracy estimator of a method, and delegates to them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor

from unseen.checks import check_type
from unseen.detection.accuracy import AccuracyEstimator, Estimate, check_classifies
from unseen.detection.detector import Detector
from unseen.detection.legacy import LegacyScoring, legacy_detector
from unseen.detection.mahalanobis import Mahalanobis, hidden_layer
from unseen.detection.max_softmax import MaxSoftmax
from unseen.detection.verdict import RATE, TOLERANCE, Verdict, verdict_by_score, verdict_on
from unseen.errors import UnseenError

log = logging.getLogger("unseen")

ScoreAt = Literal["site", "embedding"]


class HeldOut:
    """The user's held-out source data, by reference: a copy of a method does not copy it."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __deepcopy__(self, memo: Any) -> HeldOut:
        return self


class Scoring(LegacyScoring):
    """Gives a method a detector. A method with a score of its own overrides `make_detector`."""

    _detector: Detector | None = None
    _estimator: AccuracyEstimator | None = None
    _held_out: HeldOut | None = None

    def make_detector(self: Any, score_at: ScoreAt = "site") -> Detector:
        """Make the method's own detector; `score_at` matters where noise is learned."""
        if score_at == "embedding":
            raise UnseenError(
                f"{self.name} has no learned noise: its score cannot be read at the embedding"
            )
        if not self.objective.classifies:  # no class probabilities to read
            return Mahalanobis(self, hidden_layer(self))
        return legacy_detector(self) or MaxSoftmax(self)

    @property
    def detector(self) -> Detector:
        """The detector in use, by default the method's own; `unseen.calibrate` calibrates it."""
        if self._detector is None:
            self._detector = self.make_detector()
        return self._detector

    @detector.setter
    def detector(self, detector: Detector) -> None:
        self._detector = check_type("detector", detector, Detector, "a Detector")

    def uncertainty(self, x: Any) -> Tensor:
        """Return one score per sample, (N,); higher is further from the source."""
        return self.detector.score(x)

    def predict_with_uncertainty(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return logits and one score per sample."""
        return self.detector.predict_and_score(x)

    def domain_score(self, x: Any) -> float:
        """Return one score for all of x, as samples of one domain."""
        return self.detector.domain_score(x)

    def threshold(self, n: int, false_alarm_rate: float = 0.01) -> float:
        """Return the score that fresh source batches of n exceed with at most that probability."""
        return self.detector.threshold(n, false_alarm_rate)

    def alarm(self, x: Any, false_alarm_rate: float = 0.01) -> bool:
        """Return whether the samples are further from the source than chance explains."""
        return self.detector.alarm(x, false_alarm_rate)

    def keep_held_out(self, batches: Iterable[Any] | None) -> None:
        """Fit the accuracy estimator to these batches (x, y) when it is first needed."""
        self._held_out = None if batches is None else HeldOut(batches)
        self._estimator = None

    @property
    def held_out(self) -> Iterable[Any] | None:
        """The held-out source data of the calibration; it is not saved."""
        return None if self._held_out is None else self._held_out.batches

    @property
    def has_accuracy_estimator(self) -> bool:
        """Whether the estimator of these weights is there already, without a fit."""
        return self._estimator is not None and self._estimator.matches(self)

    @property
    def accuracy_estimator(self) -> AccuracyEstimator:
        """The accuracy estimator; it is fitted to the held-out source data when first needed."""
        check_classifies(self)
        if self._estimator is None or not self._estimator.matches(self):
            if self._held_out is None:
                changed = "the weights have changed since it was fitted, and there is "
                raise UnseenError(
                    f"{changed if self._estimator else ''}no held-out source data to estimate "
                    "accuracy with: give it to unseen.fit or "
                    "unseen.calibrate, held_out=..., or set net.accuracy_estimator = "
                    "unseen.AccuracyEstimator.fit(net, held_out)"
                )
            log.info("fitting the accuracy estimator to shifts of held-out source data, once")
            self._estimator = AccuracyEstimator.fit(self, self._held_out.batches)
        return self._estimator

    @accuracy_estimator.setter
    def accuracy_estimator(self, estimator: AccuracyEstimator) -> None:
        check_type("accuracy_estimator", estimator, AccuracyEstimator, "an AccuracyEstimator")
        if not estimator.matches(self):
            raise UnseenError("this estimator was fitted with another method: fit it again")
        self._estimator = estimator

    def verdict(self, x: Any, tolerance: float = TOLERANCE, rate: float = RATE) -> Verdict:
        """Judge x, samples of one domain without labels: ok, shifted, failing or unknown.

        Accuracy is defined for classes only. With another loss the verdict comes from the score:
        ok or shifted, without a prediction.

        Args:
            tolerance: loss of accuracy against the source that is still fine.
            rate: at which source batches of this size are called shifted, or failing.
        """
        net: Any = self
        if not net.objective.classifies:
            return verdict_by_score(self, x, rate)
        return verdict_on(self, x, self.accuracy_estimator, tolerance, rate)

    def estimate_accuracy(self, x: Any, level: float = 0.9) -> Estimate:
        """Estimate the accuracy on x, samples of one domain without labels."""
        return self.accuracy_estimator.estimate(x, level)

    def correctness(self, x: Any) -> Tensor:
        """Return the probability that each prediction is correct, (N,)."""
        return self.accuracy_estimator.correctness(x)
