"""Spatial pooling."""

from __future__ import annotations

from torch import Tensor


def pool(t: Tensor, axis: int) -> Tensor:
    """Average over all axes but the batch and the channels: (B, C, ...) -> (B, C).

    `axis` is the channel axis, e.g. -1 for the output (B, ..., C) of a linear layer.
    """
    t = t.movedim(axis, 1)
    return t.flatten(2).mean(2) if t.dim() > 2 else t
