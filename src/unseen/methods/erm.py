"""Empirical risk minimisation: min over theta of L(theta; S). The baseline of every table."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unseen.contracts import Batch, Method, check_targets, cross_entropy


class ERM(Method):
    """Plain training on the source, nothing else."""

    name = "erm"
    summary = "plain training on the source"
    paper = "Vapnik, Statistical Learning Theory, 1998"

    def __init__(
        self,
        model: nn.Module,
        *,
        sites: tuple[str, ...] | list[str] | str = (),
        embedding: str | None = None,
        lr: float = 1e-4,
        ignore_label: int = -100,
    ) -> None:
        super().__init__(model, sites=sites, embedding=embedding, lr=lr, ignore_label=ignore_label)
        self.optimizer = self._adam(self.trainable().values())

    def step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.model(*self._ready(batch.x))
        check_targets(logits, batch.y, self.ignore_label)
        loss = cross_entropy(logits, batch.y, self.ignore_label)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps_done += 1
        return {"loss": loss.detach()}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"adam": self.optimizer}
