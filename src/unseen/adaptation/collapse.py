"""Adaptation without labels may end with one class for everything: notice it."""

from __future__ import annotations

import torch
from torch import Tensor

KEPT = 1 / 3  # of the classes beyond the first; below it the predictions have collapsed


def effective_classes(predicted: Tensor) -> float:
    """Return exp(entropy) of the frequencies of predicted classes: 1 if there is one class only."""
    shares = torch.bincount(predicted.flatten()) / max(1, predicted.numel())
    return float(torch.special.entr(shares).sum().exp())


def describe_collapse(name: str, before: Tensor, after: Tensor) -> str | None:
    """Return a warning if far fewer classes are predicted for the same samples than before."""
    if effective_classes(after) - 1 >= KEPT * (effective_classes(before) - 1):
        return None
    label = int(after.flatten().mode().values)
    shares = [float((predicted == label).float().mean()) for predicted in (before, after)]
    return (
        f"{name}: class {label} is predicted for {shares[1]:.0%} of the target, {shares[0]:.0%} "
        "before: the adaptation has collapsed, do not use the result; begin with a model that is "
        "better in this domain, take fewer steps, or adapt with a few labels (fine_tune)"
    )
