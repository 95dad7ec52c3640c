"""Empirical risk minimisation: min over theta of L(theta; S)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, Method
from unseen.nn.microbatches import Part


class ERM(Method):
    """Standard training on the source."""

    name = "erm"
    summary = "standard training on the source"
    paper = "Vapnik, Statistical Learning Theory, 1998"

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, **common)
        self.model_optimizer = self._optimizer(self.trainable().values())

    def step(self, batch: Batch) -> dict[str, Tensor]:
        batch, logs = self.training_samples(Batch(self._ready(batch.x), batch.y))
        self.model_optimizer.zero_grad()
        terms = self.microbatches(batch).average(self._backward)
        self.apply_gradients(self.model_optimizer)
        self.steps_done += 1
        return {**terms, **logs}

    def _backward(self, part: Part) -> dict[str, Tensor]:
        terms = self.losses(part.batch)
        self.scaled(part.share * terms["loss"]).backward()
        return terms

    def training_samples(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """Return the samples that a step trains on, and scalars to log. Subclasses override this.

        It has the whole batch, and no gradient.
        """
        return batch, {}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the objective of one step as "loss", and its terms. Subclasses override this.

        It has one microbatch. What it adds to the mean over samples must not depend on others.
        """
        return {"loss": self.source_loss(batch)}

    def source_loss(self, batch: Batch) -> Tensor:
        """Compute L(theta; S) on one batch."""
        return self.objective(self.logits(batch.x), batch.y)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"model": self.model_optimizer}
