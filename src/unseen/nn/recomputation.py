"""Activation checkpointing: compute the activations of blocks again in the backward pass.

Only the inputs of a block are kept. A block is a module with layers of its own, such as a residual
block or an encoder layer. Hooks are gone in the backward pass and so are the fast weights of a meta
step, so a block with a hook inside is not recomputed as a whole, only the blocks within it are, and
each is computed again under the parameters that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from unseen.errors import UnseenError

Forward = Callable[..., Any]


def blocks(model: nn.Module) -> list[nn.Module]:
    """Return the modules whose activations can be computed again, outer ones first.

    The model is none, and a sequence of blocks is none: recomputing all of it at once would need
    the memory of all.
    """
    return [m for m in model.modules() if m is not model and _is_block(m)]


def _is_block(module: nn.Module) -> bool:
    children = list(module.children())
    if len(children) < 2 or type(module).forward is nn.Module.forward:  # e.g. a ModuleList
        return False
    return not (isinstance(module, nn.Sequential) and any(_is_block(c) for c in children))


def check_recomputable(model: nn.Module) -> None:
    """Raise unless the model has a block."""
    if not blocks(model):
        raise UnseenError(
            f"activation_checkpointing found no block in {type(model).__name__}, a module with "
            "layers of its own such as nn.Sequential: leave it out, or use microbatch"
        )


@contextmanager
def recomputing(model: nn.Module) -> Iterator[None]:
    """Compute the activations of the model's blocks again in backward passes that start here."""
    changed = blocks(model)
    try:
        for block in changed:
            block.forward = partial(_forward, block, block.forward)  # an attribute of the instance
        yield
    finally:
        for block in changed:
            block.__dict__.pop("forward", None)


def _forward(block: nn.Module, forward: Forward, *args: Any, **kwargs: Any) -> Any:
    """Run a block, to be computed again if it would keep activations and has no hook inside."""
    if not torch.is_grad_enabled() or _Body.running or _has_hook_inside(block):
        return forward(*args, **kwargs)
    body = _Body(block, forward)
    return checkpoint(body.run, *args, use_reentrant=False, **kwargs)


def _has_hook_inside(block: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in block.modules() if m is not block)


class _Body(nn.Module):
    """A block's forward without its own hooks, under the parameters that the block has now."""

    running = False  # within a block: those inside it are not checkpointed again

    def __init__(self, block: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.block, self.call, self.runs = block, forward, 0
        # While `functional_call` is open these are the fast weights.
        self.parameters_then = {f"block.{name}": p for name, p in block.named_parameters()}
        self.buffers_then = {f"block.{name}": b for name, b in block.named_buffers()}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        buffers = self.buffers_then
        if self.runs > 1:  # BatchNorm has tracked this pass already
            buffers = {name: b.clone() for name, b in buffers.items()}
        before, _Body.running = _Body.running, True
        try:
            return torch.func.functional_call(
                self, {**self.parameters_then, **buffers}, args, kwargs
            )
        finally:
            _Body.running = before

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)
