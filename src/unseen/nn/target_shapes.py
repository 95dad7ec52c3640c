"""Shapes of targets that are numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unseen.errors import UnseenError


def check_shapes(output: Any, y: Tensor, what: str) -> None:
    """Raise unless output and targets are numbers of one shape; (N,) goes with (N, 1)."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
        raise UnseenError(f"the model must return a tensor of floats, it returned {kind}")
    if y.is_complex():
        raise UnseenError(f"{what} must be numbers, not {y.dtype}")
    if y.shape != output.shape and not (y.dim() == 1 and output.shape == (len(y), 1)):
        raise UnseenError(
            f"{what} have shape {tuple(y.shape)}, the model returned {tuple(output.shape)}: both "
            "need one shape"
        )


def fit_shape(y: Tensor, output: Tensor) -> Tensor:
    """Return the targets in the shape and type of the output."""
    return y.reshape(output.shape).to(output)
