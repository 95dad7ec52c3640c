"""Random numbers of a perturbed forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unseen.functional.mixup import Mixing, relaxed_bernoulli
from unseen.functional.noise import Per
from unseen.nn.precision import at_least_float32


class Draws:
    """K independent generators, one for each Monte-Carlo draw.

    A draw's numbers depend on its seed only, not on how draws are folded or split into chunks.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __len__(self) -> int:
        return len(self.generators)

    def normal(self, like: Tensor, per: Per = "feature", axis: int = 1) -> list[Tensor]:
        """Draw standard normal noise of the shape of `like` for each draw.

        The noise has one value per feature, or one per channel that is shared over space.
        """
        shape = noise_shape(like, per, axis)
        if shape != like.shape:
            return [self._normal(g, like, shape).expand(like.shape) for g in self.generators]
        like = canonical_layout(like)
        return [
            self._normal(g, like, (like.numel(),)).as_strided(like.shape, like.stride())
            for g in self.generators
        ]

    @staticmethod
    def _normal(generator: torch.Generator, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, dtype=like.dtype, device=like.device).normal_(generator=generator)

    def uniform(self, like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """Draw uniform numbers, (K, *shape); by default of the shape of `like`."""
        options: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        shape = tuple(like.shape) if shape is None else shape
        return torch.stack([torch.rand(shape, generator=g, **options) for g in self.generators])

    def beta(self, a: Tensor, b: Tensor) -> Tensor:
        """Draw from Beta(a, b) with a pathwise gradient, (K, *a.shape)."""
        a, b = at_least_float32(a), at_least_float32(b)  # torch's Beta takes no 16-bit floats
        rows = []
        for g in self.generators:
            with torch.random.fork_rng(devices=[a.device] if a.device.type == "cuda" else []):
                # torch's Beta takes no generator: seed the global one from this draw's.
                torch.manual_seed(int(torch.randint(2**62, (), generator=g, device=g.device)))
                # No validation: let a NaN reach the loss, where training reports it.
                rows.append(torch.distributions.Beta(a, b, validate_args=False).rsample())
        return torch.stack(rows)


def noise_shape(like: Tensor, per: Per, axis: int = 1) -> tuple[int, ...]:
    """Return the shape of one random number per feature, or per sample and channel."""
    if per == "feature" or like.dim() <= 2:
        return tuple(like.shape)
    kept = {0, axis % like.dim()}
    return tuple(size if dim in kept else 1 for dim, size in enumerate(like.shape))


def draw_mixing(mixing: Mixing, draws: Draws, temperature: float) -> tuple[Tensor, Tensor]:
    """Draw lam and the label smoothing of every draw and sample, (K, B) each."""
    smoothing = relaxed_bernoulli(mixing.tau, draws.uniform(mixing.tau), temperature)
    return draws.beta(mixing.a, mixing.b), smoothing


def fresh_seeds(draws: int) -> list[int]:
    """Draw seeds from torch's global generator, so that `torch.manual_seed` fixes every draw."""
    return torch.randint(2**62, (draws,)).tolist()


def canonical_layout(t: Tensor) -> Tensor:
    """Return t in a memory layout that depends on its shape only.

    Noise then does not depend on the layout a model produces. Channels last is also the fastest
    layout for convolutions on a CPU.
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats.get(t.dim(), torch.contiguous_format))
