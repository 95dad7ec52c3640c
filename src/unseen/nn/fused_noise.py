"""Fused noise of all draws at once: the fast version of `functional.noise.perturb`."""

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
) -> Tensor:
    """h + unit * softplus(mu + sigma * eps) for all draws, (draws*batch, ...); with `keep_clean` the clean h comes first.

    h holds one slot of `batch` rows, shared by all draws, or [clean,] + draws; the Gaussian holds one slot or draws.
    Without noise, e = mu. With both signs e itself is added, not its softplus. As a gain, h is multiplied by exp(unit * ...).
    """
    mu, sigma = (canonical_layout(t) for t in gaussian)
    plain = (
        h.is_contiguous() and not canonical_layout(h[:1]).is_contiguous()
    )  # then what follows may well `view` it
    out = _AddNoise.apply(
        canonical_layout(h), mu, sigma, noise, draws, batch, keep_clean, unit, sign, act
    )
    return out.contiguous() if plain else out


class _Slots(NamedTuple):
    """Which rows belong to draw k: in the site's output, in the noise's parameters, and in the result."""

    draws: int
    batch: int
    keep_clean: bool
    of_h: int
    of_noise: int

    def h(self, k: int) -> slice:
        return self._rows(0 if self.of_h == 1 else self.of_h - self.draws + k)

    def noise(self, k: int) -> slice:
        return self._rows(0 if self.of_noise == 1 else k)

    def out(self, k: int) -> slice:
        return self._rows(k + self.keep_clean)

    def _rows(self, slot: int) -> slice:
        return slice(slot * self.batch, (slot + 1) * self.batch)


class _AddNoise(torch.autograd.Function):
    """One draw at a time, so that its numbers stay in the cache; autograd's own version of it costs twice as much."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        mu: Tensor,
        sigma: Tensor,
        noise: Any,
        draws: int,
        batch: int,
        keep: bool,
        unit: float,
        sign: Sign,
        act: Act,
    ) -> Any:
        slots = _Slots(draws, batch, keep, h.shape[0] // batch, mu.shape[0] // batch)
        rows = (draws + keep) * batch
        out = torch.empty_strided((rows, *h.shape[1:]), h.stride(), dtype=h.dtype, device=h.device)
        if keep:
            out[:batch] = h[:batch]
        slopes, gains = [], []
        for k in range(draws):
            at, times = slots.noise(k), unit
            e = mu[at].clone() if noise is None else torch.addcmul(mu[at], sigma[at], noise[k])
            if sign == "positive":
                slopes.append(e.neg_().sigmoid_())  # 1 - softplus'(e)
                e, times = (
                    slopes[k].log(),
                    -unit,
                )  # softplus(e) is minus its logarithm: half the time of F.softplus
            if act == "gain":
                gains.append(e.mul_(times).exp_())
                torch.mul(h[slots.h(k)], gains[k], out=out[slots.out(k)])
            else:
                torch.add(h[slots.h(k)], e, alpha=times, out=out[slots.out(k)])
        ctx.save_for_backward(mu, h if gains else None, *slopes, *gains, *(noise or ()))
        ctx.slots, ctx.h_shape, ctx.h_stride, ctx.unit = slots, h.shape, h.stride(), unit
        ctx.bent, ctx.scaled = len(slopes), len(gains)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        slots: _Slots = ctx.slots
        mu, h, *saved = ctx.saved_tensors
        slopes, gains, noise = (
            saved[: ctx.bent],
            saved[ctx.bent :][: ctx.scaled],
            saved[ctx.bent + ctx.scaled :],
        )
        need_h, need_mu, need_sigma = ctx.needs_input_grad[:3]
        grad_h = grad_mu = grad_sigma = None
        if need_h:
            grad_h = torch.empty_strided(
                ctx.h_shape, ctx.h_stride, dtype=grad.dtype, device=grad.device
            ).zero_()
            if slots.keep_clean:
                grad_h[: slots.batch] += grad[: slots.batch]
            for k in range(slots.draws):
                of_draw = grad[slots.out(k)]
                grad_h[slots.h(k)] += of_draw * gains[k] if gains else of_draw
        if need_mu:
            grad_mu = torch.zeros_like(mu)
        if need_sigma:
            grad_sigma = torch.zeros_like(mu)
        for k in range(slots.draws if need_mu or need_sigma else 0):
            at = slots.noise(k)
            g = grad[slots.out(k)] * ctx.unit
            if gains:
                g.mul_(gains[k]).mul_(h[slots.h(k)])
            if slopes:
                g.addcmul_(g, slopes[k], value=-1)
            if grad_mu is not None:
                grad_mu[at] += g
            if grad_sigma is not None and noise:
                grad_sigma[at].addcmul_(g, noise[k])
        return grad_h, grad_mu, grad_sigma, *[None] * 7
