"""Difference of confidences: the source's accuracy minus the loss of average confidence."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from unseen.detection.average_confidence import AverageConfidence
from unseen.detection.confidence_detector import accuracy_of_rows
from unseen.functional import confidence


class DifferenceOfConfidences(AverageConfidence):
    name = "doc"
    summary = "loss of average confidence against the source"
    paper = "Guillory et al., Predicting with Confidence on Unseen Distributions, ICCV 2021"
    numbers: ClassVar[tuple[str, ...]] = ("temperature", "source_confidence", "source_accuracy")

    source_confidence: float
    source_accuracy: float

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        super().fit_to(rows, labels)
        self.source_confidence = confidence.average_confidence(rows / self.temperature)
        self.source_accuracy = accuracy_of_rows(rows, labels)

    def accuracy(self, score: float) -> float | None:
        return confidence.difference_of_confidences(
            1 - score, self.source_confidence, self.source_accuracy
        )
