"""Checks of what enters and leaves a user's model: inputs, images, labels."""

from __future__ import annotations

import logging
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unseen.errors import SampleError, UnseenError

log = logging.getLogger("unseen")

_REMEDIES = {
    "ndarray": ": convert it with torch.as_tensor(x)",
    "dict": ": give the tensors in the order of the model's arguments",
    "Batch": ": give batch.x",
}


def inputs(x: Any) -> tuple[Tensor, ...]:
    """Return the model's inputs as a tuple of tensors; images of uint8 are divided by 255."""
    values: tuple[Any, ...] = tuple(x) if isinstance(x, list | tuple) else (x,)
    if not values or not all(isinstance(t, Tensor) for t in values):
        kinds = ", ".join(map(describe_type, values)) or "nothing"
        names = [type(x).__name__, *(type(t).__name__ for t in values)]
        remedy = next((_REMEDIES[name] for name in names if name in _REMEDIES), "")
        raise UnseenError(f"inputs must be a tensor or a tuple of tensors, not {kinds}{remedy}")
    if any(t.is_meta for t in values):
        raise UnseenError("inputs must hold numbers; a tensor on the device meta has none")
    if values[0].dim() == 0:
        raise UnseenError("inputs need a batch dimension, (N, ...); this one is a single number")
    return tuple(_scaled(t) for t in values)


def _scaled(t: Tensor) -> Tensor:
    if t.dtype != torch.uint8 or t.dim() != 4:
        return t
    _notice_scaling()
    return t.to(torch.get_default_dtype()) / 255


@cache  # once per process
def _notice_scaling() -> None:
    log.warning(
        "images of uint8 are divided by 255 here and wherever they are given: give floats to "
        "choose another range"
    )


def check_finite(x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the inputs, or raise an error that names the first sample with NaN or infinity."""
    for t in x:
        # One sum per batch: it is finite unless an entry is not, or it overflows.
        if not t.is_floating_point() or math.isfinite(t.detach().sum().item()):
            continue
        finite = t.isfinite().reshape(len(t), -1).all(1)
        if not finite.all():
            sample = int(finite.logical_not().nonzero()[0])
            kind = "NaN" if t[sample].isnan().any() else "infinity"
            raise SampleError(
                sample, f"the input holds {kind}: look for NaN in the data, or leave the sample out"
            )
    return x


def images(x: tuple[Tensor, ...], wanted_by: str) -> Tensor:
    """Return the only input if it is a float image batch (N, C, H, W), else raise."""
    if len(x) != 1 or x[0].dim() != 4 or not x[0].is_floating_point():
        raise UnseenError(
            f"{wanted_by} needs images, one input (N, C, H, W) of floats; this model is given "
            f"{describe_tensors(x)}"
        )
    return x[0]


def in_unit_range(x: Tensor, wanted_by: str) -> Tensor:
    """Return the images if they lie in [0, 1], else raise."""
    if not x.numel():
        return x
    low, high = float(x.min()), float(x.max())
    if not (low >= 0 and high <= 1):
        raise UnseenError(
            f"{wanted_by} needs images in 0..1, these run from {low:.3g} to {high:.3g}: "
            "normalize inside the model"
        )
    return x


def check_logits(logits: Any, samples: int | None = None) -> None:
    """Raise unless a model's output is logits, with one row for each of the samples."""
    if not isinstance(logits, Tensor) or logits.dim() < 2:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UnseenError(
            f"the model must return logits (N, C) or (N, C, H, W), it returned {shape}"
        )
    if not logits.is_floating_point():
        raise UnseenError(f"the model must return logits of floats, it returned {logits.dtype}")
    if samples is not None and len(logits) != samples:
        raise UnseenError(
            f"the model must return one row of logits per sample, it returned "
            f"{tuple(logits.shape)} for {samples} samples"
        )


def check_labels(logits: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    """Return the labels that count; raise unless they fit the shape and range of the logits."""
    if y.dtype != torch.int64:
        one_hot = y.dim() == logits.dim() and y.shape[1:2] == logits.shape[1:2]
        remedy = "one-hot labels become indices by y.argmax(1)" if one_hot else "use y.long()"
        raise UnseenError(f"labels must be class indices (int64), not {y.dtype}: {remedy}")
    expected = (logits.shape[0], *logits.shape[2:])
    if tuple(y.shape) != expected:
        raise UnseenError(
            f"labels have shape {tuple(y.shape)}; logits {tuple(logits.shape)} need {expected}"
        )
    return check_label_range(y, logits.shape[1], ignore)


def check_label_range(y: Tensor, classes: int, ignore: int = -100) -> Tensor:
    """Return the labels that count; raise if one is no index of a class."""
    counted = y[y != ignore]
    if counted.numel() == 0:
        return counted
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= classes:
        wrong = (y != ignore) & ((y < 0) | (y >= classes))
        raise SampleError(
            int(wrong.reshape(len(y), -1).any(1).nonzero()[0]),
            f"labels run from {low} to {high}; a model with {classes} outputs takes "
            f"0 to {classes - 1}",
        )
    return counted


def check_targets(logits: Any, y: Tensor, ignore: int = -100) -> None:
    """Raise unless the labels are class indices that fit the logits, and one of them counts."""
    check_logits(logits)
    if check_labels(logits, y, ignore).numel() == 0:
        raise UnseenError(f"every label of this batch is the ignored one ({ignore})")


def describe_tensors(x: tuple[Tensor, ...]) -> str:
    """Give shapes and types of tensors."""
    return ", ".join(f"{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in x)


def describe_type(value: Any) -> str:
    """Name the type of a value, with the length of a list or tuple."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
