"""Base of the detectors that need the logits alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from unseen.detection.detector import Detector
from unseen.functional.scores import mean_over_pixels


class LogitDetector(Detector):
    """Scores the logits; over the pixels of a map the score is averaged. Write `from_logits`."""

    @property
    def feature_count(self) -> int:
        return 1

    @staticmethod
    @abstractmethod
    def from_logits(logits: Tensor) -> Tensor:
        """Return the score of each sample or pixel, (N, C, ...) -> (N, ...)."""

    @classmethod
    def features(cls, logits: Tensor) -> Tensor:
        """Return the features of logits that are already there, (N, C, ...) -> (N, 1)."""
        return mean_over_pixels(cls.from_logits(logits))

    def features_of(self, logits: Tensor, watched: Any) -> Tensor:
        return self.features(logits)
