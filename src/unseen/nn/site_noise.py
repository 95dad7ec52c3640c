"""Noise on the features of a site: its parameters, its random numbers, how it acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unseen.functional.kernels import perturb_by_kernel
from unseen.functional.noise import (
    Act,
    Gaussian,
    NoiseKind,
    Per,
    Sign,
    Strength,
    noise_amount,
    split_gaussian,
)
from unseen.nn.fused_noise import add_noise
from unseen.nn.heads import NoiseHead
from unseen.nn.kernel_head import KernelHead
from unseen.nn.random import Draws, canonical_layout, noise_shape


@dataclass
class SiteNoise:
    """How noise enters the features of the sites; see `methods.Noise` for the options."""

    kind: NoiseKind = "learned"
    per: Per = "feature"
    sign: Sign = "positive"
    act: Act = "offset"
    strength: Strength | None = None
    sparse: float | None = None
    units: Mapping[str, float] = field(default_factory=dict)  # of offsets, per site; 1 if absent
    gain_unit: float = 1.0  # of gains and kernels

    def gaussian(self, head: NoiseHead, x: Tensor, h: Tensor) -> Gaussian:
        """Return the parameters of the noise at a site with input x and output h."""
        if self.kind == "random_gaussian":
            like = h.repeat_interleave(2, head.axis) if self.act == "both" else h
            if self.act == "kernel":
                like = h.new_empty(h.shape[0], head.width)
            return Gaussian(torch.zeros_like(like), torch.ones_like(like))
        mu, sigma = head(x)
        if self.kind == "random_mu":
            mu = torch.zeros_like(mu)
        elif self.kind == "random_sigma":
            sigma = torch.ones_like(sigma)
        return Gaussian(mu, sigma)

    def fits(self, gaussian: Gaussian, h: Tensor, head: NoiseHead) -> bool:
        """Return whether there is a Gaussian for every feature, or for a kernel of the channels."""
        if isinstance(head, KernelHead):
            return h.dim() == 4 and h.shape[1] == head.channels
        expected = list(h.shape)
        expected[head.axis] *= 2 if self.act == "both" else 1
        return gaussian.mu.shape[1:] == tuple(expected)[1:]

    def draw_strength(self, draws: Draws, like: Tensor) -> Tensor | None:
        """Draw the strengths of a pass, which all its sites share: (K, B) or (K, 1)."""
        if self.strength is None:
            return None
        if self.strength == "sample":
            return draws.uniform(like, like.shape[:1])
        return draws.uniform(like, (1,), shared=True)

    def apply(
        self,
        site: str,
        h: Tensor,
        gaussian: Gaussian,
        head: NoiseHead,
        draws: Draws,
        batch: int,
        keep_clean: bool,
        strength: Tensor | None,
    ) -> Tensor:
        """Perturb h for all draws; `add_noise` describes the rows."""
        if isinstance(head, KernelHead):
            return self._convolve(h, gaussian, head.size, draws, batch, keep_clean, strength)
        like, unit, axis = h[:batch], self.units.get(site, 1.0), head.axis
        if self.act == "both":
            gain, offset = split_gaussian(gaussian, axis)
            noise, amounts = self._draw(draws, like, axis, strength)
            h = add_noise(
                h, gain, noise, len(draws), batch, keep_clean,
                self.gain_unit, self.sign, "gain", amounts,
            )  # fmt: skip
            gaussian = offset
        noise, amounts = self._draw(draws, like, axis, strength)
        act: Act = "gain" if self.act == "gain" else "offset"
        unit = self.gain_unit if act == "gain" else unit
        return add_noise(
            h, gaussian, noise, len(draws), batch, keep_clean, unit, self.sign, act, amounts
        )

    def _convolve(
        self,
        h: Tensor,
        gaussian: Gaussian,
        size: int,
        draws: Draws,
        batch: int,
        keep_clean: bool,
        strength: Tensor | None,
    ) -> Tensor:
        """Convolve the images of all draws with kernels of their own."""
        mu, sigma = (t.to(h.dtype).reshape(-1, batch, t.shape[1]) for t in gaussian)
        noise, amounts = self._draw(draws, mu[0], -1, strength)
        e = mu.expand(len(draws), -1, -1)
        if noise is not None:
            e = e + sigma * torch.stack(noise)
        e = self.gain_unit * (e if amounts is None else e * torch.stack([*amounts]))
        if h.shape[0] == batch:  # all draws share the images, and their patches
            out = perturb_by_kernel(h, e.transpose(0, 1), size).transpose(0, 1)
        else:
            own = h[-len(draws) * batch :]
            out = perturb_by_kernel(own, e.reshape(-1, 1, e.shape[2]), size)
        out = out.reshape(-1, *h.shape[1:])
        if not h.is_contiguous():
            out = canonical_layout(out)
        return torch.cat([h[:batch], out]) if keep_clean else out

    def _draw(
        self, draws: Draws, like: Tensor, axis: int, strength: Tensor | None
    ) -> tuple[list[Tensor] | None, Sequence[Tensor] | None]:
        """Draw eps, None for deterministic noise, and the amounts, None for 1."""
        noise = None if self.kind == "deterministic" else draws.normal(like, self.per, axis)
        uniform = None
        if strength is not None:
            strength = strength.reshape(*strength.shape, *[1] * (like.dim() - 1))
        if self.sparse is not None:
            uniform = draws.uniform(like, noise_shape(like, self.per, axis))
        amounts = noise_amount(strength, uniform, self.sparse)
        return noise, None if amounts is None else amounts.unbind()
