"""Checks that weights are finite. A model with NaN or infinite weights answers at chance level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from unseen.errors import UnseenError


def infinities(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of the tensors that hold infinities, such as the mask of an attention."""
    return {name: t.detach().clone() for name, t in _numbers(tensors) if not t.isfinite().all()}


def find_not_finite(tensors: Mapping[str, Tensor], allowed: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor with NaN, or with an infinity that `allowed` does not have."""
    for name, tensor in _numbers(tensors):
        bad = ~tensor.isfinite()
        if name in allowed:
            bad &= tensor != allowed[name].to(tensor.device)  # NaN differs from NaN
        if bad.any():
            return name
    return None


def check_update(tensors: Mapping[str, Tensor], allowed: Mapping[str, Tensor], step: int) -> None:
    """Raise an error if weights or buffers are not finite after a step of training."""
    if name := find_not_finite(tensors, allowed):
        raise UnseenError(
            f"{name} is not finite after step {step}: the update overflowed; "
            "lower the learning rates, or look for extreme values in the data"
        )


def _numbers(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that can hold NaN; a state dict may also hold other objects."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and (tensor.is_floating_point() or tensor.is_complex()):
            yield name, tensor.float() if tensor.element_size() == 1 else tensor
