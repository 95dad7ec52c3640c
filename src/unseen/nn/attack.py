"""Signed gradient ascent on the inputs, within a small box around each of them.

    max over |delta| <= eps of  L(theta; x + delta, y)

by steps along the sign of the gradient, projected onto the box (Madry et al., ICLR 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.nn.batch import Batch
from unseen.nn.hooks import scratch_buffers
from unseen.nn.inputs import Inputs
from unseen.nn.microbatches import Part
from unseen.nn.model_errors import model_errors
from unseen.nn.ranks import ranks
from unseen.nn.wrapper import ModelWrapper

Loss = Callable[[tuple[Tensor, ...]], Tensor]


def attacked(net: ModelWrapper, batch: Batch, eps: float, step: float, steps: int) -> Batch:
    """Return a batch with inputs that raise the loss of the model, with the same labels."""
    in_unit_range = within_unit_range(batch.x)

    def attack_part(part: Part) -> tuple[Tensor, ...]:
        return attack(input_loss(net, part.y), part.x, eps, step, steps, in_unit_range)

    with model_errors(net.model, batch.x), net.full_precision():
        columns = zip(*net.microbatches(batch).map(attack_part), strict=True)
        x = [part[0] if len(part) == 1 else torch.cat(part) for part in columns]
    return Batch(Inputs.like(batch.x, x), batch.y)


def input_loss(net: ModelWrapper, y: Tensor) -> Loss:
    """Return the loss as a function of the inputs, without effect on BatchNorm's statistics."""
    theta = {name: p.detach() for name, p in net.model.named_parameters()}

    def loss(x: tuple[Tensor, ...]) -> Tensor:
        return net.objective(net.logits(x, {**theta, **scratch_buffers(net.model)}), y)

    return loss


def attack(
    loss: Loss,
    x: tuple[Tensor, ...],
    eps: float,
    step: float,
    steps: int,
    in_unit_range: Sequence[bool] | None = None,
) -> tuple[Tensor, ...]:
    """Perturb the float inputs by signed gradient ascent within eps, from a random start.

    Inputs that lie in 0..1 stay in that range. Inputs of other types are unchanged.

    Args:
        in_unit_range: which inputs lie in 0..1 in the whole batch, if x is a part of it.
    """
    floats = [i for i, t in enumerate(x) if t.is_floating_point()]
    if not floats:
        kinds = ", ".join(str(t.dtype).removeprefix("torch.") for t in x)
        raise UnseenError(
            f"the adversary perturbs float inputs; this model is given {kinds} only: leave out pgd "
            "and ball"
        )
    bounded = within_unit_range(x) if in_unit_range is None else in_unit_range
    boxes = {i: box(x[i], eps, bounded[i]) for i in floats}
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


def within_unit_range(x: tuple[Tensor, ...]) -> list[bool]:
    """Return for each input whether it has floats in 0..1 only, in every process."""
    return [
        t.is_floating_point() and ranks().everywhere(bool(t.min() >= 0 and t.max() <= 1)) for t in x
    ]


def box(x: Tensor, eps: float, in_unit_range: bool) -> tuple[Tensor, Tensor]:
    """Return the lower and upper bounds of a perturbed x."""
    low, high = x - eps, x + eps
    return (low.clamp(min=0), high.clamp(max=1)) if in_unit_range else (low, high)


def project(bounds: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, bounds[0]), bounds[1])
