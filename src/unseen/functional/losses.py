"""Classification loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, target: Tensor, ignore: int = -100) -> Tensor:
    """Return the mean cross-entropy with class indices (N, ...) or probabilities (N, C, ...)."""
    if not target.is_floating_point():
        return F.cross_entropy(logits, target, ignore_index=ignore)
    return -(target * F.log_softmax(logits, dim=1)).sum(1).mean()
