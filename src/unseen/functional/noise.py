"""Learned Gaussian noise on features, and its divergence from a prior."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor

SIGMA_FLOOR = 1e-3  # of the KL term only: an ascent may drive sigma to 0 in single precision

NoiseKind = Literal["learned", "random_gaussian", "deterministic", "random_mu", "random_sigma"]
HeadInput = Literal["clean", "perturbed"]
Per = Literal["feature", "channel"]
Sign = Literal["positive", "both"]
Act = Literal["offset", "gain", "both", "kernel"]
Strength = Literal["sample", "batch"]
Depth = Literal["all", "random"]


class Gaussian(NamedTuple):
    """Mean and scale of the noise at one site."""

    mu: Tensor
    sigma: Tensor


def perturb(
    h: Tensor,
    gaussian: Gaussian,
    eps: Tensor | None,
    unit: float = 1.0,
    sign: Sign = "positive",
    act: Act = "offset",
    amount: Tensor | None = None,
) -> Tensor:
    """Return h + unit * softplus(mu + sigma * eps) (Eq. 2).

    Without `eps` the noise is its mean. With sign "both" the noise is added without the softplus.
    As a gain it multiplies: h * exp(unit * noise). An `amount` (see `noise_amount`) scales the
    noise. Training runs `nn.fused_noise.add_noise`, which is tested against this function.
    """
    e = gaussian.mu if eps is None else gaussian.mu + gaussian.sigma * eps
    noise = unit * (F.softplus(e) if sign == "positive" else e)
    if amount is not None:
        noise = noise * amount
    return h * noise.exp() if act == "gain" else h + noise


def noise_amount(
    strength: Tensor | None, uniform: Tensor | None, fraction: float | None
) -> Tensor | None:
    """Return what noise is multiplied by: a strength, and 0 where a feature receives none.

    strength: (B, 1, ...), one number per sample, or a single one.
    uniform: numbers in [0, 1), one per feature; those below `fraction` receive noise.
    """
    if uniform is None or fraction is None:
        return strength
    mask = (uniform < fraction).to(uniform.dtype)
    return mask if strength is None else strength * mask


def split_gaussian(gaussian: Gaussian, axis: int) -> tuple[Gaussian, Gaussian]:
    """Return the noise of the gain and of the offset, the halves of what a head gives for both."""
    (gain_mu, mu), (gain_sigma, sigma) = (t.chunk(2, dim=axis) for t in gaussian)
    return Gaussian(gain_mu, gain_sigma), Gaussian(mu, sigma)


def kl_divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """Return KL[q || p] of diagonal Gaussians, elementwise."""
    q_sigma, p_sigma = q.sigma.clamp_min(SIGMA_FLOOR), p.sigma.clamp_min(SIGMA_FLOOR)
    ratio = (q_sigma / p_sigma).square()
    return 0.5 * (ratio + ((q.mu - p.mu) / p_sigma).square() - 1 - ratio.log())
