"""Layout of the batch dimension in a perturbed forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class RowLayout:
    """Segments of the batch at one point of a pass: [clean | draws | mixed].

    The clean segment has B rows. The other two have K * B rows, draw after draw.
    """

    batch: int  # B
    draws: int  # K
    has_clean: bool = True
    has_draws: bool = False
    has_mixed: bool = False

    @property
    def clean(self) -> slice:
        return slice(0, self.batch)

    @property
    def perturbed(self) -> slice:
        return self._segment(self.batch * self.has_clean)

    @property
    def mixed(self) -> slice:
        return self._segment(self.unmixed.stop)

    @property
    def unmixed(self) -> slice:
        """Rows of the clean segment and of the draws."""
        return slice(0, self.batch * (self.has_clean + self.draws * self.has_draws))

    @property
    def total(self) -> int:
        return self.batch * (self.has_clean + self.draws * (self.has_draws + self.has_mixed))

    def _segment(self, start: int) -> slice:
        return slice(start, start + self.batch * self.draws)


def fold(t: Tensor, times: int) -> Tensor:
    """Repeat a batch: (B, ...) -> (times * B, ...)."""
    return torch.cat([t] * times)  # keeps channels_last, unlike expand and flatten


def take(t: Tensor, rows: slice) -> Tensor:
    """Return some rows; the gradient keeps the memory layout of t.

    That of `t[rows]` is contiguous, which costs two conversions of all rows in channels_last.
    """
    if rows.start == 0 and rows.stop == t.shape[0]:
        return t
    if not t.requires_grad or not torch.is_grad_enabled():
        return t[rows]
    taken: Tensor = _Take.apply(t, rows)  # type: ignore[no-untyped-call]
    return taken


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, rows: slice) -> Tensor:
        # Like t, also where t is expanded and has memory for one row only.
        ctx.shape, ctx.stride = t.shape, torch.empty_like(t, device="meta").stride()
        ctx.rows = rows
        return t[rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        options: dict[str, Any] = {"dtype": grad.dtype, "device": grad.device}
        whole, rows = torch.empty_strided(ctx.shape, ctx.stride, **options), ctx.rows
        whole[: rows.start] = 0
        whole[rows] = grad
        whole[rows.stop :] = 0
        return whole, None
