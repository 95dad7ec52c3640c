"""Few-shot adaptation as the paper does it: a few steps from the meta-learned weights on the labelled target samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.adaptation.base import FEW_LABELS, Adaptation, Labelled, descend
from unseen.api import Batch, inputs
from unseen.errors import UnseenError


class FineTune(Adaptation):
    """Descend the loss of the few labelled samples, and nothing else."""

    name = "fine_tune"
    summary = "a few steps on the few labels; the source is not looked at"
    paper = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"
    needs = FEW_LABELS

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, **common)
        self.optimizer = self._adam(self.model)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        loss = self._loss(self.model(*target.x), target.y)
        descend(self.optimizer, loss)
        return {"loss": loss.detach()}


def fine_tune(
    model: nn.Module,
    x: Any,
    y: Tensor,
    *,
    steps: int = 100,
    lr: float = 1e-4,
    batch: int = 32,
    seed: int = 0,
    ignore_label: int = -100,
) -> nn.Module:
    """A copy of the model after that many Adam steps on the labelled samples; BatchNorm keeps its statistics."""
    x = inputs(x)
    if not isinstance(y, Tensor) or len(y) != len(x[0]) or not len(y):
        found = f"{len(y)} labels" if isinstance(y, Tensor) else type(y).__name__
        raise UnseenError(
            f"y must be a tensor of one label for each of the {len(x[0])} samples, not {found}"
        )
    few = Labelled(tuple(t.cpu() for t in x), y.cpu())
    with torch.random.fork_rng(devices=[]):
        tuned = FineTune(model, steps=steps, lr=lr, batch=batch, ignore_label=ignore_label)
        return tuned.run(few, few, seed=seed, progress=False)
