"""Adversarial training by projected gradient descent (Madry et al., ICLR 2018).

    min over theta of  max over |delta| <= eps of  L(theta; x + delta, y)

The inner maximum is approached by signed gradient steps, each clipped to the box of half-width eps around x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, check_targets, cross_entropy
from unseen.checks import check_int, check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.hooks import scratch_buffers

Loss = Callable[[tuple[Tensor, ...]], Tensor]


class PGD(ERM):
    """Plain training on inputs that a few signed gradient steps have made as hard as a small box around them allows."""

    name = "pgd"
    summary = "trains on the worst inputs of a small box around each sample, found by signed gradient steps"
    paper = "Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, ICLR 2018"

    def __init__(
        self,
        model: nn.Module,
        *,
        eps: float = 8
        / 255,  # this and the next two: the adversary that the paper trains with on CIFAR-10
        step_size: float = 2 / 255,
        attack_steps: int = 7,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.eps, self.step_size = (
            check_positive("eps", eps),
            check_positive("step_size", step_size),
        )
        self.attack_steps = check_int("attack_steps", attack_steps, 1)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        attacked = attack(
            self._loss_at(batch.y), batch.x, self.eps, self.step_size, self.attack_steps
        )
        return {"loss": self.source_loss(Batch(attacked, batch.y))}

    def _loss_at(self, y: Tensor) -> Loss:
        """The loss as a function of the inputs alone; BatchNorm's running averages learn nothing from it."""
        theta = {name: p.detach() for name, p in self.model.named_parameters()}

        def loss_of(x: tuple[Tensor, ...]) -> Tensor:
            logits = torch.func.functional_call(
                self.model, {**theta, **scratch_buffers(self.model)}, x
            )
            check_targets(logits, y, self.ignore_label)
            return cross_entropy(logits, y, self.ignore_label)

        return loss_of


def attack(
    loss_of: Loss, x: tuple[Tensor, ...], eps: float, step: float, steps: int
) -> tuple[Tensor, ...]:
    """The float inputs moved uphill within eps of x, from a random start; other inputs stay as they are.

    A batch that lies in 0..1 stays there; any other is free of a range.
    """
    moving = [i for i, t in enumerate(x) if t.is_floating_point()]
    if not moving:
        kinds = ", ".join(str(t.dtype).removeprefix("torch.") for t in x)
        raise UnseenError(
            f"pgd moves inputs of floats; this model is given {kinds} only: train it with another method"
        )
    boxes = {i: box(x[i], eps) for i in moving}
    # Drawn on the CPU, whose generator a checkpoint holds.
    noise = {i: torch.rand(x[i].shape, dtype=x[i].dtype).to(x[i].device) for i in moving}
    attacked = list(x)
    for i in moving:
        attacked[i] = into(boxes[i], x[i] + eps * (2 * noise[i] - 1))
    for _ in range(steps):
        leaves = [attacked[i].requires_grad_() for i in moving]
        uphill = torch.autograd.grad(loss_of(tuple(attacked)), leaves, materialize_grads=True)
        for i, gradient in zip(moving, uphill, strict=True):
            attacked[i] = into(boxes[i], attacked[i].detach() + step * gradient.sign())
    return tuple(attacked)


def box(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The lowest and highest values that the attack may give to x."""
    low, high = x - eps, x + eps
    return (low.clamp(min=0), high.clamp(max=1)) if x.min() >= 0 and x.max() <= 1 else (low, high)


def into(bounds: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, bounds[0]), bounds[1])
