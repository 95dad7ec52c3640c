"""Predictions of several random passes: their mean is the answer, how far they disagree is the doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unseen.api import Method
from unseen.nn.hooks import evaluating


class SampledPasses(Method):
    """A method that answers with the mean of `passes` random passes; it writes `sampled_logits`.

    The randomness of pass k is seeded by k: a prediction can be repeated, and domains are compared under the same draws.
    """

    passes: int

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """The logits of each pass."""
        raise NotImplementedError

    @property
    def score_name(self) -> str:
        return "predictive_variance"

    @torch.no_grad()
    def predict_with_features(self, x: Any) -> tuple[Tensor, Tensor]:
        """Logits and score features, from one set of passes."""
        with evaluating(self.model):
            mean, variance = moments(
                logits.softmax(1) for logits in self.sampled_logits(self._ready(x))
            )
        # A probability that rounds to 0 has a logarithm all the same.
        return mean.clamp_min(torch.finfo(mean.dtype).tiny).log(), predictive_variance(variance)

    @torch.no_grad()
    def predict(self, x: Any) -> Tensor:
        """Logarithm of the mean probability over passes, in eval mode."""
        return self.predict_with_features(x)[0]

    @torch.no_grad()
    def score_features(self, x: Any) -> Tensor:
        return self.predict_with_features(x)[1]


def moments(passes: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance over two or more passes, one of them in memory at a time (Welford's recurrence)."""
    mean, squares, count = torch.zeros(()), torch.zeros(()), 0
    for count, values in enumerate(passes, start=1):
        off = values - mean
        mean = mean + off / count
        squares = squares + off * (values - mean)
    return mean, squares / (count - 1)


def predictive_variance(variance: Tensor) -> Tensor:
    """The variance of the class probabilities, summed over classes, averaged over pixels: (N, C, ...) -> (N, 1)."""
    return variance.sum(1).reshape(len(variance), -1).mean(1, keepdim=True)
