"""Checks of what enters and leaves a user's model: inputs, images, labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unseen.errors import UnseenError


def inputs(x: Any) -> tuple[Tensor, ...]:
    """Return the model's inputs as a tuple of tensors."""
    values: tuple[Tensor, ...] = tuple(x) if isinstance(x, list | tuple) else (x,)
    if not values or not all(isinstance(t, Tensor) for t in values):
        kinds = ", ".join(map(describe_type, values)) or "nothing"
        raise UnseenError(f"inputs must be a tensor or a tuple of tensors, not {kinds}")
    return values


def images(x: tuple[Tensor, ...], wanted_by: str) -> Tensor:
    """Return the only input if it is a float image batch (N, C, H, W), else raise."""
    if len(x) != 1 or x[0].dim() != 4 or not x[0].is_floating_point():
        shapes = ", ".join(f"{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in x)
        raise UnseenError(
            f"{wanted_by} needs images, one input (N, C, H, W) of floats; this model is given "
            f"{shapes}"
        )
    return x[0]


def in_unit_range(x: Tensor, wanted_by: str) -> Tensor:
    """Return the images if they lie in [0, 1], else raise."""
    low, high = float(x.min()), float(x.max())
    if not (low >= 0 and high <= 1):
        raise UnseenError(
            f"{wanted_by} needs images in 0..1, these run from {low:.3g} to {high:.3g}: "
            "normalize inside the model"
        )
    return x


def check_targets(logits: Any, y: Tensor, ignore: int = -100) -> None:
    """Raise unless the labels are class indices that fit the shape and range of the logits."""
    if not isinstance(logits, Tensor) or logits.dim() < 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UnseenError(
            f"the model must return logits (N, C) or (N, C, H, W), it returned {shape}"
        )
    if y.dtype != torch.int64:
        raise UnseenError(f"labels must be class indices (int64), not {y.dtype}")
    expected = (logits.shape[0], *logits.shape[2:])
    if tuple(y.shape) != expected:
        raise UnseenError(
            f"labels have shape {tuple(y.shape)}; logits {tuple(logits.shape)} need {expected}"
        )
    counted = y[y != ignore]
    if counted.numel() == 0:
        raise UnseenError(f"every label of this batch is the ignored one ({ignore})")
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= logits.shape[1]:
        raise UnseenError(
            f"labels run from {low} to {high}; a model with {logits.shape[1]} outputs takes "
            f"0 to {logits.shape[1] - 1}"
        )


def describe_type(value: Any) -> str:
    """Name the type of a value, with the length of a list or tuple."""
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
