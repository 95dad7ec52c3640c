"""Count, mean and sum of squared deviations, of parts that are joined later."""

from __future__ import annotations

import torch
from torch import Tensor


def moments(t: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the moments over some dimensions, (3, ...): count, mean, squared deviations."""
    count = t.numel() // max(1, t.sum(dims).numel())
    mean = t.mean(dims, keepdim=True)
    deviations = (t - mean).square().sum(dims)
    flat = mean.reshape(deviations.shape)
    return torch.stack([torch.full_like(flat, count), flat, deviations])


def join_moments(parts: Tensor) -> Tensor:
    """Return the moments of all parts, (P, 3, ...) -> (3, ...), without cancellation."""
    counts, means, deviations = parts.unbind(1)
    count = counts.sum(0)
    mean = (counts * means).sum(0) / count
    return torch.stack([count, mean, (deviations + counts * (means - mean).square()).sum(0)])
