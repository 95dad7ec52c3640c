"""Average thresholded confidence (ATC)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.functional.confidence import atc_threshold, fit_temperature, negative_entropy


class ThresholdedConfidence(ConfidenceDetector):
    name = "atc"
    summary = "fraction of predictions with less confidence than a threshold fitted on the source"
    paper = (
        "Garg et al., Leveraging Unlabeled Data to Predict Out-of-Distribution Performance, "
        "ICLR 2022"
    )
    numbers: ClassVar[tuple[str, ...]] = ("temperature", "threshold_of_confidence")

    temperature: float
    threshold_of_confidence: float

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        self.temperature = fit_temperature(rows, labels)
        confidence = negative_entropy(rows / self.temperature)
        self.threshold_of_confidence = atc_threshold(confidence, rows.argmax(1) == labels)

    def row_features(self, rows: Tensor) -> Tensor:
        confidence = negative_entropy(rows / self.temperature).double()
        return (confidence < self.threshold_of_confidence).to(rows).unsqueeze(1)

    def accuracy(self, score: float) -> float | None:
        return 1 - score
