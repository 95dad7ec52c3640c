"""Mixup: train on convex combinations of pairs of samples and their labels.

x' = lam x_i + (1 - lam) x_j,   y' = lam y_i + (1 - lam) y_j,   lam ~ Beta(alpha, alpha)

This is the baseline; Eq. 3 of the uncertainty-guided method is in functional/mixup.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.inputs import map_inputs
from unseen.nn.microbatches import Microbatches
from unseen.nn.ranks import ranks


class Mixup(ERM):
    """ERM on convex combinations of pairs of samples and their labels."""

    name = "mixup"
    summary = "ERM on convex combinations of pairs of samples and labels"
    paper = "Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018"

    def __init__(self, model: nn.Module, *, alpha: float = 1.0, **common: Any) -> None:
        super().__init__(model, **common)
        self.alpha = check_positive("alpha", alpha)

    def microbatches(self, batch: Batch) -> Microbatches:
        parts = super().microbatches(batch)
        if len(parts) > 1 and parts.weighted:
            raise UnseenError(
                f"{self.name} counts pairs of labels, of which some are ignored or weighted: leave "
                "out microbatch, and choose a smaller batch size"
            )
        return parts

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        if not all(t.is_floating_point() for t in batch.x):
            raise UnseenError(
                f"{self.name} mixes inputs: expected floats, "
                f"got {', '.join(str(t.dtype) for t in batch.x)}"
            )
        lam = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
        partner = ranks().draw(torch.randperm, len(batch.y)).to(batch.y.device)

        def other(t: Tensor) -> Tensor:  # a partner may be in another process
            return ranks().gather(t)[partner]

        logits = self.logits(map_inputs(lambda t: torch.lerp(other(t), t, lam), batch.x))
        self.objective.check(logits, batch.y)
        return {"loss": self.objective.paired(logits, batch.y, other(batch.y), lam)}
