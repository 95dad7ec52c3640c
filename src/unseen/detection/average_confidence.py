"""Average confidence: the mean highest class probability, at the source's temperature."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.functional.confidence import fit_temperature


class AverageConfidence(ConfidenceDetector):
    name = "average_confidence"
    summary = "1 - the highest class probability, scaled by a temperature fitted on the source"
    paper = "Guo et al., On Calibration of Modern Neural Networks, ICML 2017"
    numbers: ClassVar[tuple[str, ...]] = ("temperature",)

    temperature: float

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        self.temperature = fit_temperature(rows, labels)

    def row_features(self, rows: Tensor) -> Tensor:
        return 1 - (rows / self.temperature).softmax(1).amax(1, keepdim=True)

    def accuracy(self, score: float) -> float | None:
        return 1 - score
