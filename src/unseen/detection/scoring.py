"""The detector of a method, and one-line delegates to it."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from unseen.checks import check_type
from unseen.detection.detector import Detector
from unseen.detection.legacy import LegacyScoring, legacy_detector
from unseen.detection.max_softmax import MaxSoftmax
from unseen.errors import UnseenError

ScoreAt = Literal["site", "embedding"]


class Scoring(LegacyScoring):
    """Gives a method a detector. A method with a score of its own overrides `make_detector`."""

    _detector: Detector | None = None

    def make_detector(self: Any, score_at: ScoreAt = "site") -> Detector:
        """Make the method's own detector; `score_at` matters where noise is learned."""
        if score_at == "embedding":
            raise UnseenError(
                f"{self.name} has no learned noise: its score cannot be read at the embedding"
            )
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
