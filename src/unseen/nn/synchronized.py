"""BatchNorm and Dropout over the batch of all processes.

torch's SyncBatchNorm runs on GPUs only and has no second derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unseen.functional.moments import join_moments, moments
from unseen.nn.precision import at_least_float32
from unseen.nn.ranks import Ranks, ranks

Forward = Callable[[Any, Tensor], Tensor]


@contextmanager
def synchronized(model: nn.Module, *, norm: bool = True) -> Iterator[None]:
    """Let Dropout and BatchNorm layers see the whole batch while the context is open.

    Without `norm`, BatchNorm takes the statistics of the rows it is given.
    """
    found = {m: _forward_of(m) for m in model.modules()}
    replaced = {m: f for m, f in found.items() if f is not None and (norm or f is not batch_norm)}
    try:
        for layer, forward in replaced.items():
            layer.forward = partial(forward, layer)  # an attribute of the instance
        yield
    finally:
        for layer in replaced:
            layer.__dict__.pop("forward", None)


def _forward_of(layer: nn.Module) -> Forward | None:
    if type(layer).forward is _BatchNorm.forward:
        return batch_norm
    if isinstance(layer, nn.Dropout):
        return dropout_layer
    by_channel = isinstance(layer, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d)
    return feature_dropout if by_channel else None


def normalizes_batches(model: nn.Module) -> bool:
    """Return whether a layer in train mode takes statistics over the batch."""
    return any(isinstance(m, _BatchNorm) and m.training for m in model.modules())


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether a layer would take statistics over the batch in train mode."""
    return any(isinstance(m, _BatchNorm) for m in model.modules())


def batch_norm(layer: Any, x: Tensor) -> Tensor:
    """Run nn.BatchNorm with the statistics of all processes."""
    layer._check_input_dim(x)
    tracks = layer.running_mean is not None
    if tracks and not layer.training:
        return type(layer).forward(layer, x)  # type: ignore[no-any-return]
    dims = (0, *range(2, x.dim()))
    values = at_least_float32(x)
    count, mean, deviations = join_moments(stack_over_ranks(moments(values, dims)))
    if layer.training and tracks:
        _track(layer, count.detach(), mean.detach(), deviations.detach())
    shape = (1, -1, *[1] * (x.dim() - 2))
    scale = (deviations / count + layer.eps).rsqrt()
    if layer.weight is not None:
        scale = scale * layer.weight
    out: Tensor = (values - mean.reshape(shape)) * scale.reshape(shape)
    if layer.bias is not None:
        out = out + layer.bias.reshape(shape)
    return out.to(x.dtype)


@torch.no_grad()
def _track(layer: Any, count: Tensor, mean: Tensor, deviations: Tensor) -> None:
    """Update the running averages as nn.BatchNorm does, with the unbiased variance."""
    layer.num_batches_tracked.add_(1)
    rate = layer.momentum
    if rate is None:  # a plain average over all batches
        rate = 1.0 / float(layer.num_batches_tracked)
    layer.running_mean.lerp_(mean.to(layer.running_mean), rate)
    layer.running_var.lerp_((deviations / (count - 1)).to(layer.running_var), rate)


def stack_over_ranks(t: Tensor) -> Tensor:
    """Return the tensors of all processes, (processes, ...)."""
    processes: Ranks = ranks()
    slots = [torch.zeros_like(t)] * processes.size
    slots[processes.rank] = t
    return processes.sum(torch.stack(slots))


def spread_of(t: Tensor) -> Tensor:
    """Return the standard deviation of all elements, or the moments of a part for `global_std`."""
    return moments(t.flatten(), (0,)) if ranks().divided else t.std()


def global_std(parts: Sequence[Tensor]) -> Tensor:
    """Return the standard deviation over the whole batch, given `spread_of` its own parts."""
    if parts[0].dim() == 0:
        return parts[0]
    own = join_moments(torch.stack(list(parts)))
    count, _, deviations = join_moments(stack_over_ranks(own)) if ranks().size > 1 else own
    std: Tensor = (deviations / (count - 1)).sqrt()
    return std


def dropout(x: Tensor, rate: float) -> Tensor:
    """Drop numbers, drawn for the whole batch."""
    if not ranks().divided:
        return F.dropout(x, rate)
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def mask(rows: int) -> Tensor:
        shape = (rows, *x.shape[1:])
        ones = torch.ones(shape, dtype=x.dtype, device=x.device)
        return F.dropout(ones.contiguous(memory_format=layout), rate)

    kept: Tensor = x * ranks().draw(mask, len(x))
    return kept


def dropout_layer(layer: nn.Dropout, x: Tensor) -> Tensor:
    """Run nn.Dropout."""
    return dropout(x, layer.p) if layer.training and layer.p else x


def feature_dropout(layer: Any, x: Tensor) -> Tensor:
    """Run nn.Dropout2d and its kind, which drop whole channels."""
    if not layer.training or not layer.p or x.dim() < 3:
        return type(layer).forward(layer, x)  # type: ignore[no-any-return]
    drop = {3: F.dropout1d, 4: F.dropout2d, 5: F.dropout3d}[x.dim()]

    def mask(rows: int) -> Tensor:
        shape = (rows, x.shape[1], *[1] * (x.dim() - 2))
        return drop(torch.ones(shape, dtype=x.dtype, device=x.device), layer.p)

    return x * ranks().draw(mask, len(x))
