"""Adversarial training by projected gradient descent (Madry et al., ICLR 2018).

    min over theta of  max over |delta| <= eps of  L(theta; x + delta, y)

The inner maximum is approximated by signed gradient steps, projected onto the box around x.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_int, check_positive
from unseen.methods.erm import ERM
from unseen.nn.attack import attacked


class PGD(ERM):
    """ERM on adversarial examples within a small box around each input."""

    name = "pgd"
    summary = "trains on adversarial examples in a small box around each sample"
    paper = "Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, ICLR 2018"

    def __init__(
        self,
        model: nn.Module,
        *,
        eps: float = 8 / 255,  # with the next two: the paper's adversary on CIFAR-10
        step_size: float = 2 / 255,
        attack_steps: int = 7,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.eps = check_positive("eps", eps)
        self.step_size = check_positive("step_size", step_size)
        self.attack_steps = check_int("attack_steps", attack_steps, 1)

    def training_samples(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        return attacked(self, batch, self.eps, self.step_size, self.attack_steps), {}
