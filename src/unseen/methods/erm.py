"""Empirical risk minimisation: min over theta of L(theta; S)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, Method


class ERM(Method):
    """Standard training on the source."""

    name = "erm"
    summary = "standard training on the source"
    paper = "Vapnik, Statistical Learning Theory, 1998"

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, **common)
        self.model_optimizer = self._optimizer(self.trainable().values())

    def step(self, batch: Batch) -> dict[str, Tensor]:
        terms = self.losses(Batch(self._ready(batch.x), batch.y))
        self.model_optimizer.zero_grad()
        self.scaled(terms["loss"]).backward()
        self.apply_gradients(self.model_optimizer)
        self.steps_done += 1
        return {name: value.detach() for name, value in terms.items()}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the objective of one step as "loss", and its terms. Subclasses override this."""
        return {"loss": self.source_loss(batch)}

    def source_loss(self, batch: Batch) -> Tensor:
        """Compute L(theta; S) on one batch."""
        return self.objective(self.logits(batch.x), batch.y)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"model": self.model_optimizer}
