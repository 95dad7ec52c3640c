"""Mixup: learn from blends of two samples and of their labels.

x' = lam x_i + (1 - lam) x_j,   y' = lam y_i + (1 - lam) y_j,   lam ~ Beta(alpha, alpha)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch, check_targets
from unseen.checks import check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM


class Mixup(ERM):
    """Plain training on blends of two samples and of their labels."""

    name = "mixup"
    summary = "plain training on blends of two samples and of their labels"
    paper = "Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018"

    def __init__(self, model: nn.Module, *, alpha: float = 1.0, **common: Any) -> None:
        super().__init__(model, **common)
        self.alpha = check_positive("alpha", alpha)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if not all(t.is_floating_point() for t in batch.x):
            raise UnseenError(
                f"{self.name} blends inputs and needs floats, not {', '.join(str(t.dtype) for t in batch.x)}"
            )
        lam = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
        partner = torch.randperm(batch.y.shape[0]).to(batch.y.device)
        logits = self.model(*(torch.lerp(t[partner], t, lam) for t in batch.x))
        check_targets(logits, batch.y, self.ignore_label)
        return {"loss": blended_loss(logits, batch.y, batch.y[partner], lam, self.ignore_label)}


def blended_loss(logits: Tensor, y: Tensor, partner: Tensor, lam: float, ignore: int) -> Tensor:
    """Cross-entropy with lam of one label and 1 - lam of another: the same as with their blend; both must count."""
    both = (y != ignore) & (partner != ignore)
    ours, theirs = (
        F.cross_entropy(logits, t.where(both, ignore), ignore_index=ignore, reduction="sum")
        for t in (y, partner)
    )
    return (lam * ours + (1 - lam) * theirs) / both.sum().clamp(min=1)
