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
    """Predicts the mean probability of `passes` random passes. Write `sampled_logits`.

    Pass k is seeded by k, so that predictions are repeatable and domains share their draws.
    """

    passes: int

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """Yield the logits of each pass."""
        raise NotImplementedError

    @torch.no_grad()
    def predict_moments(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return log mean probabilities and the variance of the probabilities over passes."""
        with evaluating(self.model):
            mean, variance = running_moments(
                logits.softmax(1) for logits in self.sampled_logits(self._ready(x))
            )
        # A probability may underflow to 0; its logarithm stays finite.
        return mean.clamp_min(torch.finfo(mean.dtype).tiny).log(), variance

    def predict(self, x: Any) -> Tensor:
        """Return the logarithm of the mean probability over passes, in eval mode."""
        return self.predict_moments(x)[0]

    def make_detector(self, score_at: ScoreAt = "site") -> Detector:
        return super().make_detector(score_at) if score_at != "site" else PredictiveVariance(self)
