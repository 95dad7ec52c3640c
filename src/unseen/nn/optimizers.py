"""The optimizers that methods offer, and those of a user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch

from unseen.errors import UnseenError
from unseen.user_code import describe_error, describe_failure

OptimizerName = Literal["adam", "sgd"]
# From groups of parameters, as torch's optimizers take them, to an optimizer.
OptimizerFactory = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
AnyOptimizer = OptimizerName | OptimizerFactory


def check_optimizer(value: Any) -> AnyOptimizer:
    """Return the value if it names an optimizer or makes one."""
    names = get_args(OptimizerName)
    if isinstance(value, torch.optim.Optimizer):
        raise UnseenError(
            "optimizer must be made by the method, which has parameters of its own: give a "
            f"function, optimizer=lambda params: {type(value).__name__}(params, lr=...)"
        )
    if value in names or (callable(value) and not isinstance(value, str)):
        checked: AnyOptimizer = value
        return checked
    raise UnseenError(
        f"optimizer must be one of {', '.join(names)}, or a function from parameter groups to an "
        f"optimizer, not {value!r}"
    )


def make_optimizer(
    kind: AnyOptimizer, groups: Sequence[Any], lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Make an optimizer over parameter groups: dicts as in torch, or iterables of parameters."""
    params = [g if isinstance(g, dict) else {"params": list(g)} for g in groups]
    if not isinstance(kind, str):
        return _own_optimizer(kind, params)
    if kind == "sgd":
        return torch.optim.SGD(
            params, lr, momentum=0.9, nesterov=True, weight_decay=weight_decay, fused=True
        )
    return torch.optim.Adam(params, lr, weight_decay=weight_decay, fused=True)


def _own_optimizer(
    factory: OptimizerFactory, groups: list[dict[str, Any]]
) -> torch.optim.Optimizer:
    """Make a user's optimizer; groups that it left out are added to it."""
    try:
        optimizer = factory([{**group, "params": list(group["params"])} for group in groups])
    except UnseenError:
        raise
    except Exception as error:  # a user's function may raise anything
        problem = describe_failure(error) or describe_error(error)
        raise UnseenError(
            f"the function given as optimizer failed: {problem}; it is called with a list of "
            "parameter groups, as in lambda params: torch.optim.AdamW(params, lr=1e-3)"
        ) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UnseenError(
            "the function given as optimizer must return a torch.optim.Optimizer, not "
            f"{type(optimizer).__name__}"
        )
    for group in groups:
        _keep_group(optimizer, group)
    return optimizer


def _keep_group(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """Raise unless the parameters of a group have groups of their own; add those left out."""
    wanted = {id(p) for p in group["params"]}
    owners = [{id(p) for p in own["params"]} for own in optimizer.param_groups]
    present = wanted & set().union(*owners)
    if not present:
        optimizer.add_param_group(group)
    elif present != wanted or any(owner & wanted and owner - wanted for owner in owners):
        raise UnseenError(
            "the function given as optimizer must keep the parameter groups that it is given: the "
            "noise heads have their own. Pass them on, as in lambda params: "
            "torch.optim.AdamW(params, lr=1e-3)"
        )


def base_rate(optimizer: torch.optim.Optimizer) -> float:
    """Return the learning rate of the first group, before any schedule."""
    group = optimizer.param_groups[0]
    return float(group.get("initial_lr", group["lr"]))
