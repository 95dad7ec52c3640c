"""Deprecated names of 0.1, to be removed in 0.3."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from unseen.detection.detector import Detector, Look
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.source_statistics import SourceStatistics


def warn(old: str, new: str) -> None:
    """Warn that a name is deprecated."""
    message = f"{old} is deprecated and will be removed in 0.3; use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


class LegacyScoring:
    """Scoring methods that moved from Method to its detector."""

    detector: Any

    @property
    def score_name(self) -> str:
        warn("Method.score_name", "net.detector.name")
        detector: Detector = self.detector
        return "sigma" if detector.reads_learned_noise else detector.name

    @property
    def score_at(self) -> str:
        warn("Method.score_at", "net.detector.name")
        return "embedding" if isinstance(self.detector, EmbeddingShift) else "site"

    @property
    def reference(self) -> SourceStatistics | None:
        warn("Method.reference", "net.detector.statistics")
        statistics: SourceStatistics | None = self.detector.statistics
        return statistics

    @reference.setter
    def reference(self, statistics: SourceStatistics) -> None:
        warn("Method.reference", "net.detector.statistics")
        self.detector.statistics = statistics

    @property
    def reader(self) -> Any:
        warn("Method.reader", "net.detector.predictor")
        return getattr(self.detector, "predictor", None)

    def score_features(self, x: Any) -> Tensor:
        warn("Method.score_features", "net.detector.look(x).features")
        features: Tensor = self.detector.look(x).features
        return features

    def predict_with_features(self, x: Any) -> tuple[Tensor, Tensor]:
        warn("Method.predict_with_features", "net.detector.look(x)")
        logits, features = self.detector.look(x)
        return logits, features

    def score(self, features: Tensor) -> Tensor:
        warn("Method.score", "net.detector.reduce(features)")
        scores: Tensor = self.detector.reduce(features)
        return scores

    def transport(self, x: Any) -> Tensor:
        warn("Method.transport", "EmbeddingShift(net).measure_shift(x)")
        net: Any = self
        return torch.cat(EmbeddingShift(net).measure_shift(x), 1)


class MethodDetector(Detector):
    """The detector of a method that overrides the hooks of 0.1."""

    name = "custom"
    summary = "the score_features, predict_with_features and score of the method"

    def __init__(self, net: Any) -> None:
        super().__init__(net)
        self.method = net

    @torch.no_grad()
    def look(self, x: Any) -> Look:
        if _overrides(self.method, "predict_with_features"):
            return Look(*self.method.predict_with_features(x))
        return Look(self.method.predict(x), self.method.score_features(x))

    def reduce(self, features: Tensor) -> Tensor:
        if not _overrides(self.method, "score"):
            return super().reduce(features)
        scores: Tensor = self.method.score(features)
        return scores


def legacy_detector(net: Any) -> Detector | None:
    """Return a detector for a method that overrides the hooks of 0.1, else None."""
    if not (_overrides(net, "score_features") or _overrides(net, "predict_with_features")):
        return None
    warn(f"overriding {type(net).__name__}.score_features", "make_detector()")
    return MethodDetector(net)


def _overrides(net: Any, name: str) -> bool:
    return getattr(type(net), name) is not getattr(LegacyScoring, name)
