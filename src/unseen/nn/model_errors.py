"""Errors that a user's model raises, with what it was given and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.inputs import describe_tensors
from unseen.user_code import describe_error, describe_failure


@contextmanager
def model_errors(model: nn.Module, x: tuple[Tensor, ...]) -> Iterator[None]:
    """Turn an error raised inside the model into an UnseenError that names layer and inputs."""
    try:
        yield
    except UnseenError:
        raise
    except Exception as error:  # a user's forward may raise anything
        layer = _failing_layer(model, error.__traceback__)
        if layer is None:  # not raised by the model
            raise
        where = f'its layer "{layer}" ({type(model.get_submodule(layer)).__name__})'
        raise UnseenError(
            f"the model failed{f' at {where}' if layer else ''}, given {describe_tensors(x)}: "
            f"{describe_failure(error) or describe_error(error)}. "
            f"{_remedy(model, x, layer, error)}"
        ) from error


def _failing_layer(model: nn.Module, trace: TracebackType | None) -> str | None:
    """Return the name of the innermost module of the model in a traceback, "" for the model."""
    names = {id(module): name for name, module in model.named_modules()}
    found = None
    while trace is not None:
        module = trace.tb_frame.f_locals.get("self")
        found = names.get(id(module), found)
        trace = trace.tb_next
    return found


def _remedy(model: nn.Module, x: tuple[Tensor, ...], layer: str, error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "Give smaller batches"
    if isinstance(error, TypeError) and not layer:
        return (
            f"The model is called with {len(x)} inputs: give what its forward takes, "
            "without labels; torch.stack makes one batch of a list of samples"
        )
    if isinstance(error, ValueError) and "more than 1 value per channel" in str(error):
        return (
            "A batch of one sample has no variance for BatchNorm: give larger batches, or "
            "drop_last=True in the DataLoader"
        )
    if isinstance(error, IndexError) and layer_takes_indices(model, layer):
        size = model.get_submodule(layer).num_embeddings
        return f"Give indices from 0 to {int(size) - 1}, or a larger embedding"  # type: ignore[arg-type]
    weights = {p.dtype for p in model.parameters() if p.is_floating_point()}
    if x[0].dtype not in weights and not layer_takes_indices(model, layer):
        return "Give inputs of floats: x.float()"
    return "Give inputs of the shape that the model was made for, with the batch first"


def layer_takes_indices(model: nn.Module, layer: str) -> bool:
    """Return whether a layer looks up integers, such as tokens."""
    return isinstance(model.get_submodule(layer), nn.Embedding | nn.EmbeddingBag)
