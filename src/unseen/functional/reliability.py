"""Reliability of confidence: its agreement with accuracy, in bins."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 10


def reliability_bins(confidence: Tensor, correct: Tensor, bins: int = BINS) -> Tensor:
    """Return count, mean confidence and accuracy in equal bins of 0..1, (N,), (N,) -> (3, bins).

    An empty bin has zeros. A confidence of 1 belongs to the last bin.

    Args:
        correct: whether each prediction is correct, or the fraction that is.
    """
    values = torch.stack([torch.ones_like(confidence), confidence, correct.to(confidence)])
    index = (confidence * bins).long().clamp(0, bins - 1)
    sums = values.double().new_zeros(3, bins).index_add_(1, index, values.double())
    return torch.cat([sums[:1], sums[1:] / sums[0].clamp_min(1)])
