"""The learned noise: heads that give its mean and scale, its draws, and its addition to features.

e = mu + sigma * eps,    h+ = h + softplus(e)                                            (Eq. 2)

or, with noise of both signs, h+ = h + e. As a gain, the same noise multiplies: h+ = h exp(softplus(e)), or h exp(e).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unseen.errors import UnseenError

SIGMA_LEAST = 1e-3  # in the KL term alone
MU_LIMIT = 2.0  # mu is clamped to [-2, 2], sigma to (0, 1], as in the authors' release


Spread = Literal["feature", "channel"]
Sign = Literal["positive", "both"]
Act = Literal["offset", "gain"]


class Gaussian(NamedTuple):
    """Mean and scale of the noise at one site."""

    mu: Tensor
    sigma: Tensor


class GaussianHead(nn.Module):
    """Reads a site's input with the site's own geometry and gives the noise's mean and scale in one pass."""

    def __init__(self, site: nn.Module, name: str = "site") -> None:
        super().__init__()
        self.net, self.axis = _twice_as_wide(site, name)
        self.width = next(self.net.parameters()).shape[0] // 2

    def forward(self, x: Tensor) -> Gaussian:
        mu, log_var = self.net(x).chunk(2, dim=self.axis)
        return Gaussian(
            mu.clamp(-MU_LIMIT, MU_LIMIT), _scale(log_var)
        )  # log_var is this call's own

    def sigma(self, x: Tensor) -> Tensor:
        """The scale alone, at half the cost: what a deployed score needs."""
        net: Any = self.net
        # Half of the weights give log sigma itself, to the bit, and the map is passed over once less.
        weight, bias = 0.5 * net.weight[self.width :], 0.5 * net.bias[self.width :]
        log_sigma = (
            F.linear(x, weight, bias)
            if isinstance(net, nn.Linear)
            else net._conv_forward(x, weight, bias)
        )
        if torch.is_grad_enabled():
            return log_sigma.clamp(max=0.0).exp()
        return log_sigma.clamp_(
            max=0.0
        ).exp_()  # a deployed score: no copies of what may be a large map


def _scale(log_var: Tensor) -> Tensor:
    return (0.5 * log_var.clamp(max=0.0)).exp()


def _twice_as_wide(site: nn.Module, name: str) -> tuple[nn.Module, int]:
    """A fresh layer like the site with twice its outputs, and the axis of those outputs."""
    if isinstance(site, nn.Linear):
        where: dict[str, Any] = {"device": site.weight.device, "dtype": site.weight.dtype}
        return nn.Linear(site.in_features, 2 * site.out_features, **where), -1
    for dims, conv in enumerate((nn.Conv1d, nn.Conv2d, nn.Conv3d), start=1):
        if not isinstance(site, conv):
            continue
        if site.groups > 1:
            raise UnseenError(
                f'site "{name}" is a grouped convolution: name a layer with groups=1 instead'
            )
        geometry = {
            k: getattr(site, k)
            for k in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        }
        where = {"device": site.weight.device, "dtype": site.weight.dtype}
        return conv(site.in_channels, 2 * site.out_channels, **geometry, **where), -dims - 1
    raise UnseenError(
        f'site "{name}" is a {type(site).__name__}; noise enters at Conv1d, Conv2d, Conv3d or Linear'
    )


def kl_divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL[q || p] of diagonal Gaussians, elementwise; a scale that an ascent has driven to 0 counts as SIGMA_LEAST."""
    of_q, of_p = q.sigma.clamp_min(SIGMA_LEAST), p.sigma.clamp_min(SIGMA_LEAST)
    ratio = (of_q / of_p).square()
    return 0.5 * (ratio + ((q.mu - p.mu) / of_p).square() - 1 - ratio.log())


class Draws:
    """K independent sources of randomness, one seed each: folding or chunking draws never changes their numbers."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __len__(self) -> int:
        return len(self.generators)

    def normal(self, like: Tensor, over: Spread = "feature", axis: int = 1) -> list[Tensor]:
        """Standard normal noise of that shape for each draw: one number per feature, or per channel and shared over space."""
        if over == "channel" and like.dim() > 2:
            kept = {0, axis % like.dim()}
            shape = tuple(size if dim in kept else 1 for dim, size in enumerate(like.shape))
            return [self._normal(g, like, shape).expand(like.shape) for g in self.generators]
        like = laid_out(like)
        return [
            self._normal(g, like, (like.numel(),)).as_strided(like.shape, like.stride())
            for g in self.generators
        ]

    @staticmethod
    def _normal(generator: torch.Generator, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, dtype=like.dtype, device=like.device).normal_(generator=generator)

    def uniform(self, like: Tensor) -> Tensor:
        """Uniform numbers, (K, *like.shape)."""
        where: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        return torch.stack([torch.rand(like.shape, generator=g, **where) for g in self.generators])

    def beta(self, a: Tensor, b: Tensor) -> Tensor:
        """Beta(a, b) with a pathwise gradient, (K, *a.shape)."""
        rows = []
        for g in self.generators:
            with torch.random.fork_rng(devices=[a.device] if a.device.type == "cuda" else []):
                # torch's Beta takes no generator, so for a moment the global one is seeded from this draw's.
                torch.manual_seed(int(torch.randint(2**62, (), generator=g, device=g.device)))
                rows.append(
                    torch.distributions.Beta(a, b, validate_args=False).rsample()
                )  # NaN shows in the loss
        return torch.stack(rows)


def fresh_seeds(draws: int) -> list[int]:
    """Seeds from torch's global generator, so that one `torch.manual_seed` owns every draw."""
    return torch.randint(2**62, (draws,)).tolist()


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
    mu, sigma = (laid_out(t) for t in gaussian)
    plain = (
        h.is_contiguous() and not laid_out(h[:1]).is_contiguous()
    )  # then what follows may well `view` it
    out = _AddNoise.apply(laid_out(h), mu, sigma, noise, draws, batch, keep_clean, unit, sign, act)
    return out.contiguous() if plain else out


def laid_out(t: Tensor) -> Tensor:
    """t with a memory layout that depends on its shape alone: the noise then never depends on how a model got there."""
    formats = {
        4: torch.channels_last,
        5: torch.channels_last_3d,
    }  # also what convolutions on the CPU like best
    return t.contiguous(memory_format=formats.get(t.dim(), torch.contiguous_format))


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
