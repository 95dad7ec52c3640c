"""Fused noise of all draws at once, equal to `functional.noise.perturb` up to rounding.

A whole training step is 0 to 5 % faster with it than with `perturb` in a loop
(benchmarks/step_cost.py, "fused noise"). That alone would not justify it. It stays because its
rounding is that of the published runs, which a fixed seed must reproduce to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unseen.functional.noise import Act, Gaussian, Sign
from unseen.nn.random import canonical_layout


def add_noise(
    h: Tensor,
    gaussian: Gaussian,
    noise: Sequence[Tensor] | None,
    draws: int,
    batch: int,
    keep_clean: bool,
    unit: float = 1.0,
    sign: Sign = "positive",
    act: Act = "offset",
    amounts: Sequence[Tensor] | None = None,
) -> Tensor:
    """Perturb h for all draws: (draws*batch, ...), after the clean rows with `keep_clean`.

    h has `batch` rows that all draws share, or the rows of the draws, after the clean ones if
    present. The Gaussian has `batch` rows, or those of the draws. See `perturb` for the options.
    """
    # Under autocast the Gaussian has 32 bits and the features have 16.
    mu, sigma = (canonical_layout(t if t.dtype == h.dtype else t.to(h.dtype)) for t in gaussian)
    # A contiguous output may be followed by `view`, so it must stay contiguous.
    contiguous = h.is_contiguous() and not canonical_layout(h[:1]).is_contiguous()
    out: Tensor = _AddNoise.apply(  # type: ignore[no-untyped-call]
        canonical_layout(h), mu, sigma, noise, draws, batch, keep_clean, unit, sign, act, amounts
    )
    return out.contiguous() if contiguous else out


class _Slots(NamedTuple):
    """Rows of draw k in h, in the Gaussian and in the output."""

    draws: int
    batch: int
    keep_clean: bool
    in_h: int  # number of slots of `batch` rows
    in_gaussian: int

    def h(self, k: int) -> slice:
        return self._rows(0 if self.in_h == 1 else self.in_h - self.draws + k)

    def gaussian(self, k: int) -> slice:
        return self._rows(0 if self.in_gaussian == 1 else k)

    def out(self, k: int) -> slice:
        return self._rows(k + self.keep_clean)

    def writes_h_first(self, k: int) -> bool:
        """Return whether nothing of the clean rows or of other draws is in the rows of h yet."""
        return self.in_h > 1 or (k == 0 and not self.keep_clean)

    def _rows(self, slot: int) -> slice:
        return slice(slot * self.batch, (slot + 1) * self.batch)


class _AddNoise(torch.autograd.Function):
    """Handle one draw at a time, so that its numbers stay in the cache."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        mu: Tensor,
        sigma: Tensor,
        noise: Sequence[Tensor] | None,
        draws: int,
        batch: int,
        keep_clean: bool,
        unit: float,
        sign: Sign,
        act: Act,
        amounts: Sequence[Tensor] | None,
    ) -> Tensor:
        slots = _Slots(draws, batch, keep_clean, h.shape[0] // batch, mu.shape[0] // batch)
        rows = (draws + keep_clean) * batch
        out = torch.empty_strided((rows, *h.shape[1:]), h.stride(), dtype=h.dtype, device=h.device)
        if keep_clean:
            out[:batch] = h[:batch]
        slopes, gains = [], []
        for k in range(draws):
            at, factor = slots.gaussian(k), unit
            e = mu[at].clone() if noise is None else torch.addcmul(mu[at], sigma[at], noise[k])
            if sign == "positive":
                # softplus(e) = -log(sigmoid(-e)) takes half the time of F.softplus, and
                # sigmoid(-e) = 1 - softplus'(e) serves the backward pass.
                slopes.append(e.neg_().sigmoid_())
                e, factor = slopes[k].log(), -unit
            if amounts is not None:
                e.mul_(amounts[k])
            if act == "gain":
                gains.append(e.mul_(factor).exp_())
                torch.mul(h[slots.h(k)], gains[k], out=out[slots.out(k)])
            else:
                torch.add(h[slots.h(k)], e, alpha=factor, out=out[slots.out(k)])
        ctx.save_for_backward(
            mu, h if gains else None, *slopes, *gains, *(amounts or ()), *(noise or ())
        )
        ctx.slots, ctx.h_shape, ctx.h_stride, ctx.unit = slots, h.shape, h.stride(), unit
        ctx.num_slopes, ctx.num_gains, ctx.num_amounts = len(slopes), len(gains), len(amounts or ())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slots: _Slots = ctx.slots
        mu, h, *saved = ctx.saved_tensors
        slopes, saved = saved[: ctx.num_slopes], saved[ctx.num_slopes :]
        gains, saved = saved[: ctx.num_gains], saved[ctx.num_gains :]
        amounts, noise = saved[: ctx.num_amounts], saved[ctx.num_amounts :]
        need_h, need_mu, need_sigma = ctx.needs_input_grad[:3]
        grad_h = _start_of_grad_h(ctx, grad, slots, bool(gains)) if need_h else None
        grad_mu = torch.empty_like(mu) if need_mu else None
        grad_sigma = None
        if need_sigma:
            grad_sigma = torch.empty_like(mu) if noise else torch.zeros_like(mu)
        for k in range(slots.draws):
            of_draw = grad[slots.out(k)]
            if grad_h is not None and grad_h is not grad:
                part = of_draw * gains[k] if gains else of_draw
                own, first = grad_h[slots.h(k)], slots.writes_h_first(k)
                own.copy_(part) if first else own.add_(part)
            if not (need_mu or need_sigma):
                continue
            at, first = slots.gaussian(k), k == 0 or slots.in_gaussian > 1
            if first and grad_mu is not None:
                g = torch.mul(of_draw, ctx.unit, out=grad_mu[at])
            else:
                g = of_draw * ctx.unit
            if gains:
                g.mul_(gains[k]).mul_(h[slots.h(k)])
            if amounts:
                g.mul_(amounts[k])
            if slopes:
                g.addcmul_(g, slopes[k], value=-1)
            if grad_mu is not None and not first:
                grad_mu[at] += g
            if grad_sigma is not None and noise:
                if first:
                    torch.mul(g, noise[k], out=grad_sigma[at])
                else:
                    grad_sigma[at].addcmul_(g, noise[k])
        return grad_h, grad_mu, grad_sigma, *[None] * 8


def _start_of_grad_h(ctx: Any, grad: Tensor, slots: _Slots, gains: bool) -> Tensor:
    """Return the gradient by h with its clean rows; the draws are added to it.

    Where every row of h gives one row of the output, it is the gradient of the output.
    """
    if slots.in_h == slots.draws and not slots.keep_clean and not gains:
        return grad
    grad_h = torch.empty_strided(ctx.h_shape, ctx.h_stride, dtype=grad.dtype, device=grad.device)
    if slots.keep_clean:
        grad_h[: slots.batch] = grad[: slots.batch]
    elif slots.in_h > slots.draws:
        grad_h[: slots.batch] = 0
    return grad_h
