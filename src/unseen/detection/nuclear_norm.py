"""Nuclear norm of the predictions: confident, and spread over the classes."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.functional import matrix_norms
from unseen.functional.confidence import fit_temperature

MOST_CLASSES = 64  # the features are the second moments of the probabilities


class NuclearNorm(ConfidenceDetector):
    name = "nuclear_norm"
    summary = "1 - the scaled nuclear norm of the matrix of class probabilities"
    paper = "Deng et al., Confidence and Dispersity Speak, ICML 2023"
    numbers: ClassVar[tuple[str, ...]] = ("temperature",)

    temperature: float

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        self.temperature = fit_temperature(rows, labels)

    def row_features(self, rows: Tensor) -> Tensor:
        return matrix_norms.second_moments((rows / self.temperature).softmax(1))

    def reduce(self, features: Tensor) -> Tensor:
        return 1 - matrix_norms.nuclear_norm(features)
