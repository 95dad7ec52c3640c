"""Variance of the class probabilities between random passes."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from unseen.detection.detector import Detector, Look, ScoredModel
from unseen.errors import UnseenError
from unseen.functional.scores import mean_over_pixels, predictive_variance


class SampledModel(ScoredModel, Protocol):
    """A method that predicts with several random passes."""

    def predict_moments(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return log mean probabilities and the variance of the probabilities."""
        ...


class PredictiveVariance(Detector):
    name = "predictive_variance"
    summary = "variance of the class probabilities between random passes, summed over classes"
    paper = "Gal and Ghahramani, Dropout as a Bayesian Approximation, ICML 2016"

    def __init__(self, net: SampledModel) -> None:
        super().__init__(net)
        if not hasattr(net, "predict_moments"):
            raise UnseenError(
                f"{self.name} needs a method with random passes (bnn, mc_dropout), not {net.name}"
            )
        self.sampled = net

    @property
    def feature_count(self) -> int:
        return 1

    @torch.no_grad()
    def look(self, x: Any) -> Look:
        logits, variance = self.sampled.predict_moments(x)
        return Look(logits, mean_over_pixels(predictive_variance(variance)))
