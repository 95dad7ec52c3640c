"""Maps of predictions as rows: evenly spaced pixels stand for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

PIXELS = 64  # of a map: neighbours say nearly the same


def sampled_rows(logits: Tensor) -> Tensor:
    """Return logits (N, C) or (N, C, ...) as rows, (N, P, C) with P at most PIXELS."""
    flat = logits.flatten(2) if logits.dim() > 2 else logits.unsqueeze(2)
    return flat[:, :, _positions(flat.shape[2])].transpose(1, 2)


def sampled_labels(labels: Tensor) -> Tensor:
    """Return labels (N,) or (N, ...) of the pixels that `sampled_rows` takes, (N, P)."""
    flat = labels.flatten(1) if labels.dim() > 1 else labels.unsqueeze(1)
    return flat[:, _positions(flat.shape[1])]


def _positions(count: int) -> Tensor:
    taken = min(PIXELS, count)
    return ((torch.arange(taken) + 0.5) * count / taken).long()
