"""Prediction by the mean of several random passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unseen.api import Method
from unseen.detection.detector import Detector
from unseen.detection.predictive_variance import PredictiveVariance
from unseen.detection.scoring import ScoreAt
from unseen.functional.scores import running_moments
from unseen.nn.hooks import evaluating


class SampledPasses(Method):
    """Predicts the mean of `passes` random passes. Write `sampled_logits`.

    Pass k is seeded by k, so that predictions are repeatable and domains share their draws.
    """

    passes: int

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """Yield the logits of each pass."""
        raise NotImplementedError

    @torch.no_grad()
    def predict_moments(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return log mean probabilities and the variance of the probabilities over passes.

        Of a regression, return the mean output and its variance.
        """
        with evaluating(self.model):
            mean, variance = running_moments(
                self._averaged(logits) for logits in self.sampled_logits(self._ready(x))
            )
        if self.objective.classifies:
            # A probability may underflow to 0; its logarithm stays finite.
            return mean.clamp_min(torch.finfo(mean.dtype).tiny).log(), variance
        if self.loss == "bce":
            return mean.logit(torch.finfo(mean.dtype).eps), variance
        return mean, variance

    def _averaged(self, output: Tensor) -> Tensor:
        """Return what is averaged over passes: probabilities, or the output itself."""
        if self.objective.classifies:
            return output.softmax(1)
        return output.sigmoid() if self.loss == "bce" else output

    def predict(self, x: Any) -> Tensor:
        """Return the logarithm of the mean probability over passes, in eval mode."""
        return self.predict_moments(x)[0]

    def make_detector(self, score_at: ScoreAt = "site") -> Detector:
        return super().make_detector(score_at) if score_at != "site" else PredictiveVariance(self)
