"""A user's own method, and things that are none."""

from __future__ import annotations

import unseen


class Shrunk(unseen.ERM):
    """ERM with a penalty on the logits."""

    name = "shrunk"
    summary = "penalizes large logits"

    def __init__(self, model, *, penalty: float = 0.1, **common) -> None:
        super().__init__(model, **common)
        self.penalty = penalty

    def losses(self, batch):
        loss = self.source_loss(batch)
        return {"loss": loss + self.penalty * self.logits(batch.x).square().mean()}


class Clash(unseen.ERM):
    name = "mixup"


class NoMethod:
    pass
