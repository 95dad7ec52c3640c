"""The optimizers that methods offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

OptimizerName = Literal["adam", "sgd"]


def make_optimizer(
    name: OptimizerName, groups: Sequence[Any], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Make an optimizer over parameter groups: dicts as in torch, or iterables of parameters."""
    params = [g if isinstance(g, dict) else {"params": list(g)} for g in groups]
    if name == "sgd":
        return torch.optim.SGD(
            params, lr, momentum=0.9, nesterov=True, weight_decay=weight_decay, fused=True
        )
    return torch.optim.Adam(params, lr, weight_decay=weight_decay, fused=True)
