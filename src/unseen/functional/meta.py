"""Fast weights, and the gradient that comes back through them.

    theta* = theta - alpha grad L(theta; S)                                                  (Eq. 4)

With v the gradient of an outer loss by theta*, the gradient by theta is v - alpha H v, H the Hessian of L(theta; S).
First order drops the second term.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class InnerStep:
    """One plain step on the source, kept open so that an outer loss can be differentiated through it."""

    params: dict[str, Tensor]
    grads: dict[str, Tensor | None]  # of the source loss; with a graph if second order
    fast: dict[str, Tensor]  # theta*, as leaves that collect v in .grad
    alpha: float
    second_order: bool

    def gradient(self, name_to_v: dict[str, Tensor]) -> dict[str, Tensor]:
        """The outer gradient by theta, from the one by theta*."""
        total = dict(name_to_v)
        known = [
            (g, total[n])
            for n, g in self.grads.items()
            if g is not None and g.requires_grad and n in total
        ]
        if not (self.second_order and known):
            return total
        inner, v = zip(*known, strict=True)
        curvature = torch.autograd.grad(
            inner, list(self.params.values()), grad_outputs=v, allow_unused=True
        )
        for (name, param), hv in zip(self.params.items(), curvature, strict=True):
            if hv is not None:
                total[name] = torch.add(
                    total.get(name, torch.zeros_like(param)), hv, alpha=-self.alpha
                )
        return total


def inner_step(
    loss: Tensor, params: dict[str, Tensor], alpha: float, second_order: bool
) -> InnerStep:
    """theta* after one step of size alpha down the source loss; alpha = 0 leaves theta* = theta."""
    values = list(params.values())
    grads = torch.autograd.grad(loss, values, create_graph=second_order, allow_unused=True)
    fast = {}
    for (name, param), grad in zip(params.items(), grads, strict=True):
        stepped = (
            param.detach().clone()
            if grad is None
            else torch.add(param.detach(), grad.detach(), alpha=-alpha)
        )
        fast[name] = stepped.requires_grad_()
    return InnerStep(params, dict(zip(params, grads, strict=True)), fast, alpha, second_order)
