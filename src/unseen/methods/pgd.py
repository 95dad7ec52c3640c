"""Adversarial training by projected gradient descent (Madry et al., ICLR 2018).

    min over theta of  max over |delta| <= eps of  L(theta; x + delta, y)

The inner maximum is approximated by signed gradient steps, projected onto the box around x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_int, check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.hooks import scratch_buffers
from unseen.nn.inputs import Inputs
from unseen.nn.ranks import ranks

Loss = Callable[[tuple[Tensor, ...]], Tensor]


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

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        with self.full_precision():
            adversarial = attack(
                self._input_loss(batch.y), batch.x, self.eps, self.step_size, self.attack_steps
            )
        return {"loss": self.source_loss(Batch(adversarial, batch.y))}

    def _input_loss(self, y: Tensor) -> Loss:
        """Return the loss as a function of the inputs, without effect on BatchNorm's statistics."""
        theta = {name: p.detach() for name, p in self.model.named_parameters()}

        def loss(x: tuple[Tensor, ...]) -> Tensor:
            logits = self.logits(x, {**theta, **scratch_buffers(self.model)})
            return self.objective(logits, y)

        return loss


def attack(
    loss: Loss, x: tuple[Tensor, ...], eps: float, step: float, steps: int
) -> tuple[Tensor, ...]:
    """Perturb the float inputs by signed gradient ascent within eps, from a random start.

    Inputs that lie in 0..1 stay in that range. Inputs of other types are unchanged.
    """
    floats = [i for i, t in enumerate(x) if t.is_floating_point()]
    if not floats:
        kinds = ", ".join(str(t.dtype).removeprefix("torch.") for t in x)
        raise UnseenError(
            f"pgd perturbs float inputs; this model is given {kinds} only: use another method"
        )
    boxes = {i: box(x[i], eps) for i in floats}
    # Drawn on the CPU, whose generator is part of a checkpoint.
    noise = {i: uniform_like(x[i]) for i in floats}
    perturbed = list(x)
    for i in floats:
        perturbed[i] = project(boxes[i], x[i] + eps * (2 * noise[i] - 1))
    for _ in range(steps):
        leaves = [perturbed[i].requires_grad_() for i in floats]
        gradients = torch.autograd.grad(
            loss(Inputs.like(x, perturbed)), leaves, materialize_grads=True
        )
        for i, gradient in zip(floats, gradients, strict=True):
            perturbed[i] = project(boxes[i], perturbed[i].detach() + step * gradient.sign())
    return Inputs.like(x, perturbed)


def uniform_like(x: Tensor) -> Tensor:
    """Draw uniform numbers of the shape of x."""
    return ranks().draw(lambda n: torch.rand((n, *x.shape[1:]), dtype=x.dtype), len(x)).to(x.device)


def box(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the lower and upper bounds of a perturbed x."""
    low, high = x - eps, x + eps
    in_unit_range = ranks().everywhere(bool(x.min() >= 0 and x.max() <= 1))
    return (low.clamp(min=0), high.clamp(max=1)) if in_unit_range else (low, high)


def project(bounds: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, bounds[0]), bounds[1])
