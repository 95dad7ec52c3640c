"""Random numbers of a perturbed forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unseen.functional.mixup import Mixing, relaxed_bernoulli
from unseen.functional.noise import Per
from unseen.nn.precision import at_least_float32
from unseen.nn.ranks import ALONE, ranks


class Draws:
    """K independent generators, one for each Monte-Carlo draw.

    A draw's numbers depend on its seed only: not on how draws are folded or split into chunks, nor
    on how many processes or microbatches share the batch.
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
        flat = (like.shape[0], like.numel() // max(1, like.shape[0]))
        return [
            self._normal(g, like, flat).as_strided(like.shape, like.stride())
            for g in self.generators
        ]

    @staticmethod
    def _normal(generator: torch.Generator, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        def draw(rows: int) -> Tensor:
            empty = torch.empty((rows, *shape[1:]), dtype=like.dtype, device=like.device)
            return empty.normal_(generator=generator)

        return ranks().draw(draw, shape[0])

    def uniform(
        self, like: Tensor, shape: tuple[int, ...] | None = None, shared: bool = False
    ) -> Tensor:
        """Draw uniform numbers, (K, *shape); by default of the shape of `like`.

        The first dimension has the rows of the batch, unless the numbers are `shared` by all rows.
        """
        options: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        rows, *rest = like.shape if shape is None else shape
        sharing = ALONE if shared else ranks()

        def draw(g: torch.Generator) -> Tensor:
            return sharing.draw(lambda n: torch.rand((n, *rest), generator=g, **options), rows)

        return torch.stack([draw(g) for g in self.generators])

    def beta(self, a: Tensor, b: Tensor) -> Tensor:
        """Draw from Beta(a, b) with a pathwise gradient, (K, *a.shape)."""
        a, b = at_least_float32(a), at_least_float32(b)  # torch's Beta takes no 16-bit floats
        # How many numbers a row takes depends on its a and b, so others' rows are drawn too.
        a, b = ranks().gather(torch.stack([a, b], 1)).unbind(1)
        rows = []
        for g in self.generators:
            with torch.random.fork_rng(devices=[a.device] if a.device.type == "cuda" else []):
                # torch's Beta takes no generator: seed the global one from this draw's.
                torch.manual_seed(int(torch.randint(2**62, (), generator=g, device=g.device)))
                # No validation: let a NaN reach the loss, where training reports it.
                drawn = torch.distributions.Beta(a, b, validate_args=False).rsample()
                rows.append(ranks().take(drawn))
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
