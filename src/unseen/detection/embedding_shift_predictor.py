"""Ridge regression that predicts how far learned noise moves an embedding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.errors import UnseenError

# With 48 features, any ridge from 0.01 to 1 gave the same order of shifts.
RIDGE = 0.1  # per sample
LEAST = 1e-6  # of the mean squared shift; below it a logarithm is useless
MARGIN = 4.0  # beyond the source's range of log squared shifts: a factor of seven


@dataclass(frozen=True)
class EmbeddingShiftPredictor:
    """Predicts the shift of every feature of an embedding z without drawing noise.

    log of the mean of (z+ - z)^2 over draws = z @ weight + bias, fitted on the source.
    """

    weight: Tensor  # (F, F)
    bias: Tensor  # (F,)
    # Range of the prediction on the source and a margin, so that no embedding gives infinity.
    low: Tensor  # (F,)
    high: Tensor  # (F,)

    def __call__(self, z: Tensor) -> Tensor:
        """Return the predicted root mean square shift, (N, F) -> (N, F)."""
        log = z @ self.weight.to(z) + self.bias.to(z)
        return (0.5 * log.clamp(self.low.to(z), self.high.to(z))).exp()

    @classmethod
    def fit(cls, z: Tensor, squared: Tensor) -> EmbeddingShiftPredictor:
        """Fit to source embeddings (N, F) and the mean squared shift of their features (N, F)."""
        z, squared = z.double(), squared.double()
        if len(z) < 2 or not (z.isfinite().all() and squared.isfinite().all()):
            raise UnseenError(
                "a score at the embedding needs at least two source samples, all finite"
            )
        least = LEAST * squared.mean().clamp_min(torch.finfo(torch.float32).tiny)
        log = squared.clamp_min(least).log()
        centre, spread = z.mean(0), z.std(0)
        spread = torch.where(spread > 0, spread, 1.0)
        x = (z - centre) / spread
        penalty = RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
        slope = torch.linalg.solve(x.T @ x + penalty, x.T @ (log - log.mean(0)))
        weight = slope / spread[:, None]
        bias = log.mean(0) - centre @ weight
        predicted = z @ weight + bias
        low, high = predicted.amin(0) - MARGIN, predicted.amax(0) + MARGIN
        return cls(*(t.float() for t in (weight, bias, low, high)))
