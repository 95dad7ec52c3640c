"""Generic shifts of held-out source data, kinds of them at two strengths and blends: what a score is compared with accuracy on.

None of them looks at a target. Images keep the range of values they had; other inputs are changed in units of their own spread.
A real domain differs in several ways at once, hence the blends (Deng and Zheng, CVPR 2021, estimate accuracy from such sets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

# From inputs and a source of random numbers to shifted inputs of the same shapes.
Shift = Callable[[tuple[Tensor, ...], torch.Generator], tuple[Tensor, ...]]
Shifts = Mapping[str, Sequence[Shift]]


def shifts_for(x: tuple[Tensor, ...], label_maps: bool = False) -> dict[str, list[Shift]]:
    """The kinds of shifts that suit such inputs, each at its strengths, weakest first; none that moves things off label maps."""
    pictures = (
        len(x) == 1 and x[0].dim() == 4 and x[0].is_floating_point() and min(x[0].shape[2:]) >= 8
    )
    if pictures:
        kinds = {kind: made for kind, made in IMAGE.items() if not (label_maps and kind in MOVING)}
        return {
            kind: [partial(_of_pictures, make, s) for s in strengths]
            for kind, (make, strengths) in kinds.items()
        }
    numbers = any(t.is_floating_point() for t in x)
    table = {**ANY, **NUMBERS} if numbers else ANY
    return {
        kind: [partial(_of_each, make, s) for s in strengths]
        for kind, (make, strengths) in table.items()
    }


def with_blends(shifts: Shifts, blends: int, seed: int = 0) -> list[tuple[tuple[str, ...], Shift]]:
    """Every shift by itself, then random blends of two to five kinds, one after the other; each with the kinds in it."""
    made: list[tuple[tuple[str, ...], Shift]] = [
        ((kind,), shift) for kind, strengths in shifts.items() for shift in strengths
    ]
    g = torch.Generator().manual_seed(seed)
    kinds = list(shifts)
    for number in range(blends):
        # At least one kind is left out of every blend, so that a curve without the blended ones has something to go by.
        size = min(2 + number % 4, len(kinds) - 1)
        chosen = [kinds[i] for i in torch.randperm(len(kinds), generator=g)[:size].tolist()]
        parts = [
            shifts[kind][int(torch.randint(len(shifts[kind]), (), generator=g))] for kind in chosen
        ]
        made.append((tuple(chosen), partial(_one_after_the_other, parts)))
    return made


def _one_after_the_other(
    parts: Sequence[Shift], x: tuple[Tensor, ...], g: torch.Generator
) -> tuple[Tensor, ...]:
    for part in parts:
        x = part(x, g)
    return x


def uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.rand(tuple(shape), generator=generator)


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randn(tuple(shape), generator=generator)


# ---------------------------------------------------------------------------------- images (N, C, H, W) in 0..1


def _of_pictures(
    make: Callable[..., Tensor], strength: float, x: tuple[Tensor, ...], g: torch.Generator
) -> tuple[Tensor]:
    """The shift in 0..1, whatever the range of the images: mel-spectrograms and normalised images have their own."""
    (pictures,) = (t.cpu().float() for t in x)
    low, high = pictures.min(), pictures.max()
    width = (high - low).clamp(min=1e-12)
    return ((make((pictures - low) / width, strength, g).clamp(0, 1) * width + low).to(x[0]),)


def noisier(x: Tensor, spread: float, g: torch.Generator) -> Tensor:
    return x + spread * normal(x.shape, g)


def specked(x: Tensor, share: float, g: torch.Generator) -> Tensor:
    """That share of the pixels black or white."""
    n, _, h, w = x.shape
    u = uniform((n, 1, h, w), g)
    return torch.where(u < share / 2, 0.0, torch.where(u > 1 - share / 2, 1.0, x))


def blurred(x: Tensor, width: float, g: torch.Generator) -> Tensor:
    from kornia.filters import (
        gaussian_blur2d,  # kornia takes a second to import: only where it is needed
    )

    sigma = width * min(x.shape[2:]) / 32
    size = 2 * max(1, round(2 * sigma)) + 1
    return gaussian_blur2d(x, (size, size), (sigma, sigma), border_type="replicate")


def coarser(x: Tensor, factor: float, g: torch.Generator) -> Tensor:
    small = F.interpolate(x, scale_factor=1 / factor, mode="area")
    return F.interpolate(small, size=x.shape[2:], mode="nearest")


def flatter(x: Tensor, kept: float, g: torch.Generator) -> Tensor:
    """Less contrast around each image's mean."""
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + kept * (x - mean)


def darker(x: Tensor, kept: float, g: torch.Generator) -> Tensor:
    return kept * x


def brighter(x: Tensor, added: float, g: torch.Generator) -> Tensor:
    return x + added


def inverted(x: Tensor, share: float, g: torch.Generator) -> Tensor:
    """That share of the images with light and dark exchanged."""
    chosen = torch.arange(len(x)).view(-1, 1, 1, 1) < round(share * len(x))
    return torch.where(chosen, 1 - x, x)


def on_texture(x: Tensor, weight: float, g: torch.Generator) -> Tensor:
    """Blended with smooth random colours."""
    n, c, h, w = x.shape
    patches = uniform((n, c, max(2, h // 6), max(2, w // 6)), g)
    return (1 - weight) * x + weight * F.interpolate(patches, size=(h, w), mode="bilinear")


def hidden(x: Tensor, side: float, g: torch.Generator) -> Tensor:
    """A grey square of that share of the sides, anywhere."""
    n, _, h, w = x.shape
    top, left = uniform((n, 1, 1, 1), g) * (1 - side) * h, uniform((n, 1, 1, 1), g) * (1 - side) * w
    row, column = torch.arange(h).view(1, 1, h, 1), torch.arange(w).view(1, 1, 1, w)
    covered = (row >= top) & (row < top + side * h) & (column >= left) & (column < left + side * w)
    return torch.where(covered, 0.5, x)


def turned(x: Tensor, degrees: float, g: torch.Generator) -> Tensor:
    return _warped(x, angle=degrees * _either_way(len(x), g))


def zoomed(x: Tensor, factor: float, g: torch.Generator) -> Tensor:
    return _warped(x, zoom=torch.full((len(x),), factor))


def moved(x: Tensor, share: float, g: torch.Generator) -> Tensor:
    """By that share of the sides, to any side."""
    return _warped(
        x, shift=2 * share * torch.stack([_either_way(len(x), g), _either_way(len(x), g)], 1)
    )


def _either_way(n: int, g: torch.Generator) -> Tensor:
    return torch.where(uniform((n,), g) < 0.5, -1.0, 1.0)


def _warped(
    x: Tensor, angle: Tensor | None = None, zoom: Tensor | None = None, shift: Tensor | None = None
) -> Tensor:
    """Turned (degrees), zoomed and moved (half sides) around the middle; what comes in repeats the border."""
    n = len(x)
    turn = torch.deg2rad(torch.zeros(n) if angle is None else angle)
    scale = torch.ones(n) if zoom is None else zoom
    offset = torch.zeros(n, 2) if shift is None else shift
    cos, sin = turn.cos() / scale, turn.sin() / scale
    matrix = torch.stack(
        [torch.stack([cos, -sin, offset[:, 0]], 1), torch.stack([sin, cos, offset[:, 1]], 1)], 1
    )
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)


IMAGE: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "noise": (noisier, (0.1, 0.3)),
    "specks": (specked, (0.05, 0.2)),
    "blur": (blurred, (1.0, 2.5)),
    "coarse": (coarser, (2, 4)),
    "contrast": (flatter, (0.5, 0.2)),
    "dark": (darker, (0.5, 0.2)),
    "bright": (brighter, (0.2, 0.5)),
    "inversion": (inverted, (0.5, 1.0)),
    "texture": (on_texture, (0.3, 0.6)),
    "hidden": (hidden, (0.25, 0.45)),
    "rotation": (turned, (10, 25)),
    "zoom_out": (zoomed, (0.85, 0.7)),
    "zoom_in": (zoomed, (1.2, 1.4)),
    "move": (moved, (0.05, 0.1)),
}
MOVING = ("rotation", "zoom_out", "zoom_in", "move")


# ------------------------------------------------------------------ other inputs: vectors, signals, counts, tokens


def _of_each(
    make: Callable[..., Tensor], strength: float, x: tuple[Tensor, ...], g: torch.Generator
) -> tuple[Tensor, ...]:
    """The shift of every input it is meant for; whole numbers are tokens and take no arithmetic."""
    whole = {make for make, _ in ANY.values()}
    return tuple(
        make(t.cpu(), strength, g).to(t) if t.is_floating_point() or make in whole else t for t in x
    )


def dropped(t: Tensor, share: float, g: torch.Generator) -> Tensor:
    """That share of the entries is lost: zero."""
    return torch.where(uniform(t.shape, g) < share, torch.zeros_like(t), t)


def columns_dropped(t: Tensor, share: float, g: torch.Generator) -> Tensor:
    """That share of the features is lost in every sample."""
    return torch.where(uniform(t.shape[1:], g) < share, torch.zeros_like(t), t)


def exchanged(t: Tensor, share: float, g: torch.Generator) -> Tensor:
    """That share of the entries comes from another sample."""
    return torch.where(uniform(t.shape, g) < share, t[torch.randperm(len(t), generator=g)], t)


def scattered(t: Tensor, spreads: float, g: torch.Generator) -> Tensor:
    return t + spreads * t.float().std() * normal(t.shape, g)


def offset(t: Tensor, spreads: float, g: torch.Generator) -> Tensor:
    return t + spreads * t.float().std()


def scaled(t: Tensor, factor: float, g: torch.Generator) -> Tensor:
    return factor * t


ANY: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "dropped": (dropped, (0.2, 0.5)),
    "columns_dropped": (columns_dropped, (0.2, 0.5)),
    "exchanged": (exchanged, (0.2, 0.5)),
}
NUMBERS: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "noise": (scattered, (0.5, 1.5)),
    "offset": (offset, (0.5, 1.5)),
    "smaller": (scaled, (0.6, 0.25)),
    "larger": (scaled, (1.6, 3.0)),
}
