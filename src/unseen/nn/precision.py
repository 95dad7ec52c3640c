"""Mixed precision: the model's passes in 16 bits, everything else in 32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.nn.ranks import ranks

Amp = Literal["bf16", "fp16"]
HALF = (torch.bfloat16, torch.float16)
DTYPES: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


def at_least_float32(t: Tensor) -> Tensor:
    """Return the tensor, in 32 bits if it has 16."""
    return t.float() if t.dtype in HALF else t


def outputs_in_float32(out: Any) -> Any:
    """Return a model's output with its 16-bit tensors in 32 bits."""
    if isinstance(out, Tensor):
        return at_least_float32(out)
    if isinstance(out, dict):  # also what transformers returns
        for name, value in out.items():
            out[name] = outputs_in_float32(value)
        return out
    if isinstance(out, list | tuple):
        values = [outputs_in_float32(value) for value in out]
        return type(out)(*values) if hasattr(out, "_fields") else type(out)(values)
    return out


class GradientSteps:
    """Backward passes and optimizer steps of a method, which 16-bit floats need scaled.

    The training loop sets `scaler` during a step.
    """

    scaler: torch.amp.GradScaler | None = None
    _full_precision = False

    @property
    def loss_scale(self) -> float:
        """The factor of every loss whose gradients reach an optimizer."""
        return 1.0 if self.scaler is None else float(self.scaler.get_scale())

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss to call backward() on."""
        return loss if self.scaler is None else loss * self.loss_scale

    def apply_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Step an optimizer whose gradients are those of scaled losses."""
        lay_out_gradients(optimizer)
        if self.scaler is None:
            optimizer.step()
            return
        self.scaler.scale(torch.zeros((), device=_device_of(optimizer)))  # creates its state
        ranks().average_gradients(optimizer)  # an overflow of one process is one of all
        # Before the step, so that gradients are clipped by their true norm.
        self.scaler.unscale_(optimizer)
        self.scaler.step(optimizer)

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Run the model in 32 bits where gradients are not scaled; bf16 needs no scale."""
        before = self._full_precision
        self._full_precision = self.scaler is not None
        try:
            yield
        finally:
            self._full_precision = before

    @contextmanager
    def mixed_precision(
        self, model: nn.Module, amp: Amp, scaler: torch.amp.GradScaler | None
    ) -> Iterator[None]:
        """Run the passes of the model under autocast while the context is open."""
        device = next(model.parameters()).device
        opened: list[ExitStack] = []

        def before(*_: Any) -> None:
            stack = ExitStack()
            stack.enter_context(
                torch.autocast(device.type, DTYPES[amp], enabled=not self._full_precision)
            )
            opened.append(stack)

        def after(_: nn.Module, __: Any, out: Any) -> Any:
            opened.pop().close()
            return outputs_in_float32(out)

        handles = (
            model.register_forward_pre_hook(before, prepend=True),
            model.register_forward_hook(after, always_call=True),
        )
        self.scaler = scaler
        try:
            yield
        finally:
            self.scaler = None
            for handle in handles:
                handle.remove()
            while opened:
                opened.pop().close()


def end_of_step(scaler: torch.amp.GradScaler, method: str) -> bool:
    """Adjust the scale after a step; return whether the step was skipped as it overflowed."""
    before = scaler.get_scale()
    try:
        scaler.update()
    except AssertionError:  # no optimizer has been stepped through the scaler
        raise UnseenError(
            f'{method} does not scale its loss, which amp="fp16" needs: call '
            "self.scaled(loss).backward() and self.apply_gradients(optimizer) in step, or use "
            'amp="bf16"'
        ) from None
    return scaler.get_scale() < before


def lay_out_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Give gradients the memory layout of their parameters.

    Fused optimizers on a CPU read both in the order of memory, and `torch.autograd.grad` returns
    gradients of convolutions in channels_last.
    """
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        gradient = parameter.grad
        if gradient is not None and gradient.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(gradient)


def _device_of(optimizer: torch.optim.Optimizer) -> torch.device:
    device: torch.device = optimizer.param_groups[0]["params"][0].device
    return device
