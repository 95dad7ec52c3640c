"""Fast weights and the gradient through them.

    theta* = theta - alpha grad L(theta; S)                                                  (Eq. 4)

With v the gradient of an outer loss with respect to theta*, the gradient with respect to theta is
v - alpha H v, where H is the Hessian of L(theta; S). First order drops the second term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Of gradients over the processes that share a batch; the second argument has their shapes.
Average = Callable[[Sequence[Tensor | None], Sequence[Tensor]], list[Tensor | None]]


def keep(values: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor | None]:
    """Average over one process."""
    return list(values)


@dataclass
class InnerStep:
    """A gradient step on the source loss through which an outer loss can be differentiated."""

    params: dict[str, Tensor]
    grads: dict[str, Tensor | None]  # of the source loss; with a graph if second order
    averaged: dict[str, Tensor | None]  # `grads` of all processes, without a graph
    fast: dict[str, Tensor]  # theta*, as leaves that collect v in .grad
    alpha: float
    second_order: bool
    average: Average = keep
    # Of the source loss: H v for each parameter. None if `grads` have a graph that gives it.
    hessian_product: Callable[[Mapping[str, Tensor]], Sequence[Tensor | None]] | None = None

    def gradient(self, v: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outer gradient with respect to theta, given v.

        Both are those of one process: v is averaged before the product with its Hessian, and the
        caller averages the result.
        """
        total = dict(v)
        if not self.second_order:
            return total
        total = self._average_over_processes(total)
        products = (self.hessian_product or self._product_with_graph)(total)
        for (name, param), product in zip(self.params.items(), products, strict=True):
            if product is not None:
                base = total.get(name, torch.zeros_like(param))
                total[name] = torch.add(base, product, alpha=-self.alpha)
        return total

    def _product_with_graph(self, v: Mapping[str, Tensor]) -> Sequence[Tensor | None]:
        return vector_product(self.grads, v, list(self.params.values()))

    def _average_over_processes(self, v: Mapping[str, Tensor]) -> dict[str, Tensor]:
        values = self.average([v.get(name) for name in self.params], list(self.params.values()))
        return {n: t for n, t in zip(self.params, values, strict=True) if t is not None}

    def total_gradient(self, source_weight: float) -> dict[str, Tensor]:
        """Return the gradient of the outer loss, collected in `fast`, plus that of the source.

        What `fast` collected is changed, which saves a copy of all weights.
        """
        v = {name: leaf.grad for name, leaf in self.fast.items() if leaf.grad is not None}
        total = self.gradient(v)
        for name, g in self.averaged.items():
            if source_weight and g is not None:
                known = total.get(name)
                total[name] = (
                    g * source_weight if known is None else known.add_(g, alpha=source_weight)
                )
        return total


def vector_product(
    grads: Mapping[str, Tensor | None], v: Mapping[str, Tensor], params: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    """Return the product of v with the Hessian of which `grads`, with a graph, are the rows."""
    pairs = [
        (g, v[name]) for name, g in grads.items() if g is not None and g.requires_grad and name in v
    ]
    if not pairs:
        return [None] * len(params)
    inner, outer = zip(*pairs, strict=True)
    return torch.autograd.grad(inner, params, grad_outputs=outer, allow_unused=True)


def inner_step(
    loss: Tensor,
    params: Mapping[str, Tensor],
    alpha: float,
    second_order: bool,
    scale: float = 1.0,
    average: Average = keep,
) -> InnerStep:
    """Take one step of size alpha on the source loss; alpha = 0 gives theta* = theta.

    The loss is scaled for its backward pass only, in which floats of 16 bits could underflow. Its
    gradients are averaged over processes before the step.
    """
    grads = torch.autograd.grad(
        loss if scale == 1 else loss * scale,
        list(params.values()),
        create_graph=second_order,
        allow_unused=True,
    )
    if scale != 1:
        grads = tuple(None if g is None else g / scale for g in grads)
    return step_along(grads, params, alpha, second_order, average)


def step_along(
    grads: Sequence[Tensor | None],
    params: Mapping[str, Tensor],
    alpha: float,
    second_order: bool,
    average: Average = keep,
) -> InnerStep:
    """Take one step of size alpha along the gradients of the source loss."""
    params = dict(params)
    own = [None if g is None else g.detach() for g in grads]
    averaged = dict(zip(params, average(own, list(params.values())), strict=True))
    fast = {}
    for name, param in params.items():
        value, grad = param.detach(), averaged[name]
        value = value.clone() if grad is None else torch.add(value, grad, alpha=-alpha)
        fast[name] = value.requires_grad_()
    named: dict[str, Tensor | None] = dict(zip(params, grads, strict=True))
    return InnerStep(params, named, averaged, fast, alpha, second_order, average)
