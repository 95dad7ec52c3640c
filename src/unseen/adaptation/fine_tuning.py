"""Fine-tuning: a few steps on labelled target samples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.adaptation.base import FEW_LABELS, Adaptation, Labelled, descend
from unseen.api import Batch
from unseen.errors import UnseenError
from unseen.nn.inputs import check_finite, inputs, map_inputs
from unseen.nn.objectives import AnyLoss


class FineTune(Adaptation):
    """Minimise the loss on a few labelled samples."""

    name = "fine_tune"
    summary = "a few steps on labelled target samples; does not use the source"
    paper = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"
    needs = FEW_LABELS
    any_loss = True

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, **common)
        self.optimizer = self._adam(self.model)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        loss = self._loss(self._logits(target.x), target.y)
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
    loss: AnyLoss = "cross_entropy",
) -> nn.Module:
    """Return a copy of the model fine-tuned on labelled samples.

    BatchNorm keeps its running statistics, and torch's global generator is left unchanged.

    Args:
        model: The trained model or method; it is not changed.
        x: Inputs, a tensor, a tuple or a dict of tensors.
        y: Labels, one per sample.
        steps: Number of Adam steps.
        lr: Learning rate.
        batch: Samples per step.
        seed: Seed of the batch order.
        ignore_label: Label that does not count.
        loss: As of a method, whose own loss is the default.
    """
    x = check_finite(inputs(x))
    if not isinstance(y, Tensor) or y.dim() == 0 or len(y) != len(x[0]) or not len(y):
        got = f"labels of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise UnseenError(
            f"y must be a tensor with one label for each of the {len(x[0])} samples, not {got}"
        )
    few = Labelled(map_inputs(Tensor.cpu, x), y.cpu())
    with torch.random.fork_rng(devices=[]):
        settings: dict[str, Any] = {"steps": steps, "lr": lr, "batch": batch, "loss": loss}
        adaptation = FineTune(model, ignore_label=ignore_label, **settings)
        return adaptation.run(few, few, seed=seed, progress=False)
