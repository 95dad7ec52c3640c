"""Confidence optimal transport: COT, and COTT with a threshold."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.functional.confidence import atc_threshold, fit_temperature, transported_confidence

CHUNK = 64  # predictions that are matched at once: exact, and fast


class ConfidenceTransport(ConfidenceDetector):
    """Predictions are matched with labels in the proportions of the source."""

    name = "cot"
    summary = "1 - the probability of the label that optimal transport assigns"
    paper = (
        "Lu et al., Characterizing Out-of-Distribution Error via Optimal Transport, NeurIPS 2023"
    )
    numbers: ClassVar[tuple[str, ...]] = ("temperature", "marginal")

    temperature: float
    marginal: Tensor  # (C,)

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        self.temperature = fit_temperature(rows, labels)
        self.marginal = torch.bincount(labels, minlength=rows.shape[1]).double() / len(labels)

    def row_features(self, rows: Tensor) -> Tensor:
        probabilities = (rows / self.temperature).softmax(1).cpu()
        chunks = probabilities.tensor_split(max(1, math.ceil(len(rows) / CHUNK)))
        matched = [transported_confidence(chunk, self.marginal) for chunk in chunks]
        return 1 - torch.cat(matched).to(rows).unsqueeze(1)

    def accuracy(self, score: float) -> float | None:
        return 1 - score


class ThresholdedTransport(ConfidenceTransport):
    name = "cott"
    summary = "fraction of transported confidences below a threshold fitted on the source"
    numbers: ClassVar[tuple[str, ...]] = ("temperature", "marginal", "threshold_of_confidence")

    threshold_of_confidence: float

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        super().fit_to(rows, labels)
        confidence = 1 - super().row_features(rows).squeeze(1)
        self.threshold_of_confidence = atc_threshold(confidence, rows.argmax(1) == labels)

    def row_features(self, rows: Tensor) -> Tensor:
        confidence = 1 - super().row_features(rows)
        return (confidence < self.threshold_of_confidence).to(rows)
