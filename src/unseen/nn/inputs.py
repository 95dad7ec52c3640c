"""Checks of what enters and leaves a user's model: inputs, images, labels."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unseen.errors import SampleError, UnseenError
from unseen.nn.ranks import ranks

log = logging.getLogger("unseen")

LABEL_KEYS = ("labels", "label", "targets", "target", "y")  # of a batch that is a dict

_REMEDIES = {
    "ndarray": ": convert it with torch.as_tensor(x)",
    "list": ": let the loader make one padded tensor of it",
    "Batch": ": give batch.x",
}


class Inputs(tuple[Tensor, ...]):
    """The tensors that a model is called with: model(*positional, **keywords).

    A tuple of all of them; the last ones have names, which are those of keyword arguments.
    """

    names: tuple[str, ...]

    def __new__(cls, tensors: Iterable[Tensor] = (), names: Iterable[str] = ()) -> Inputs:
        self = super().__new__(cls, tensors)
        self.names = tuple(names)
        return self

    @classmethod
    def like(cls, x: tuple[Tensor, ...], tensors: Iterable[Tensor]) -> Inputs:
        """Make inputs of other tensors, with the names of x."""
        return cls(tensors, getattr(x, "names", ()))

    @property
    def positional(self) -> tuple[Tensor, ...]:
        return tuple(self)[: len(self) - len(self.names)]

    @property
    def keywords(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self[len(self) - len(self.names) :], strict=True))


def map_inputs(change: Callable[[Tensor], Tensor], x: tuple[Tensor, ...]) -> Inputs:
    """Change every tensor of the inputs; names stay."""
    return Inputs.like(x, [change(t) for t in x])


def take_rows(x: tuple[Tensor, ...], rows: slice | Tensor) -> Inputs:
    """Return some samples; a tensor without one row for each sample stays whole."""
    samples = x[0].shape[:1]

    def take(t: Tensor) -> Tensor:
        if t.shape[:1] != samples:
            return t
        return t[rows.to(t.device) if isinstance(rows, Tensor) else rows]

    return map_inputs(take, x)


def inputs(x: Any) -> Inputs:
    """Return the model's inputs from a tensor, a tuple of tensors, or a mapping by argument name.

    Labels and text in a mapping are left out. Images of uint8 are divided by 255.
    """
    names: tuple[str, ...] = getattr(x, "names", ()) if isinstance(x, Inputs) else ()
    if isinstance(x, Mapping):
        kept = {n: t for n, t in x.items() if n not in LABEL_KEYS and not _is_text(t)}
        names = tuple(map(str, kept))
        x = tuple(kept.values())
    values: tuple[Any, ...] = tuple(x) if isinstance(x, list | tuple) else (x,)
    if not values or not all(isinstance(t, Tensor) for t in values):
        labels = [f"{name} as " for name in names] or [""] * len(values)
        kinds = ", ".join(n + describe_type(t) for n, t in zip(labels, values, strict=True))
        kinds = kinds or "nothing"
        kind_names = [type(x).__name__, *(type(t).__name__ for t in values)]
        remedy = next((_REMEDIES[name] for name in kind_names if name in _REMEDIES), "")
        raise UnseenError(
            f"inputs must be a tensor, or a tuple or dict of tensors, not {kinds}{remedy}"
        )
    if any(t.is_meta for t in values):
        raise UnseenError("inputs must hold numbers; a tensor on the device meta has none")
    if values[0].dim() == 0:
        raise UnseenError("inputs need a batch dimension, (N, ...); this one is a single number")
    return Inputs(map(_scaled, values), names)


def _is_text(value: Any) -> bool:
    """Return whether an entry of a batch is no number: text, or nothing at all."""
    return (
        value is None
        or isinstance(value, str)
        or (isinstance(value, list | tuple) and all(isinstance(v, str | None) for v in value))
    )


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
            f"the model must return logits (N, C) or (N, C, H, W), it returned {shape}; if they "
            "are a part of its output, name it: output=..."
        )
    if not logits.is_floating_point():
        raise UnseenError(f"the model must return logits of floats, it returned {logits.dtype}")
    if samples is not None and len(logits) != samples:
        raise UnseenError(
            f"the model must return one row of logits per sample, it returned "
            f"{tuple(logits.shape)} for {samples} samples"
        )


def check_finite_logits(logits: Tensor) -> None:
    """Raise if a model's output is not finite, and name the first sample."""
    if not math.isfinite(logits.detach().sum().item()):
        finite = logits.isfinite().reshape(len(logits), -1).all(1)
        if not finite.all():
            sample = int(finite.logical_not().nonzero()[0])
            raise SampleError(
                sample,
                "the model's output is not finite: look for NaN in the weights, or for very large "
                "inputs",
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
            f"{_shape_remedy(logits, y)}"
        )
    return check_label_range(y, logits.shape[1], ignore)


def _shape_remedy(logits: Tensor, y: Tensor) -> str:
    if y.shape == logits.shape:
        return ': one-hot labels become indices by y.argmax(1); several labels need loss="bce"'
    return ": give y.squeeze(1)" if y.dim() == logits.dim() and y.shape[1] == 1 else ""


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
    if check_labels(logits, y, ignore).numel() == 0 and not ranks().counts_elsewhere:
        raise UnseenError(f"every label of this batch is the ignored one ({ignore})")


def describe_tensors(x: tuple[Tensor, ...]) -> str:
    """Give shapes and types of tensors, and the names they have."""
    names = getattr(x, "names", ())
    labels = [""] * (len(x) - len(names)) + [f"{name} " for name in names]
    return ", ".join(
        f"{label}{tuple(t.shape)} of {str(t.dtype).removeprefix('torch.')}"
        for label, t in zip(labels, x, strict=True)
    )


def describe_type(value: Any) -> str:
    """Name the type of a value, with the length of a list or tuple."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


@torch.no_grad()
def warn_of_probabilities(output: Tensor) -> None:
    """Warn if every sample's outputs are a distribution over the classes, not logits."""
    if output.shape[1] < 2 or not bool((output >= 0).all()):
        return
    if bool((output.float().sum(1) - 1).abs().max() < 0.01):  # bf16 rounds to three digits
        log.warning(
            "the model returns probabilities: its outputs are between 0 and 1 and sum to 1. The "
            "loss takes logits; a second softmax makes training slow and the confidence low. "
            "Remove the softmax from the end of the model, or give the method "
            "output=lambda p: p.clamp_min(1e-9).log()"
        )
