"""Generic shifts of held-out source data, to relate a score to accuracy without target data.

Every kind of shift has several strengths, from one that hardly costs accuracy to one that leaves
little of it. Images keep their range of values; sparse inputs, such as counts of words, stay
sparse; other inputs are changed in units of their standard deviation. A real domain differs in
several ways at once, hence blends of several kinds (Deng and Zheng, CVPR 2021, estimate accuracy
from such sets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.nn.inputs import Inputs, map_inputs

# From inputs and a generator to shifted inputs of the same shapes.
Shift = Callable[[tuple[Tensor, ...], torch.Generator], tuple[Tensor, ...]]
Shifts = Mapping[str, Sequence[Shift]]
# From one tensor, a strength and a generator to the shifted tensor.
TensorShift = Callable[[Tensor, float, torch.Generator], Tensor]
ShiftTable = dict[str, tuple[TensorShift, tuple[float, ...]]]

MOSTLY_ZERO = 0.5  # from this share of zeros on, inputs count as sparse
SMALLEST_IMAGE = 8  # pixels a side; smaller inputs are not treated as images


def shifts_for(x: tuple[Tensor, ...], label_maps: bool = False) -> dict[str, list[Shift]]:
    """Return the kinds of shift for such inputs, each at its strengths, weakest first.

    With `label_maps`, shifts that would move pixels off their labels are left out.
    """
    is_image = len(x) == 1 and x[0].dim() == 4 and x[0].is_floating_point()
    if is_image and min(x[0].shape[2:]) >= SMALLEST_IMAGE:
        kinds = {k: v for k, v in IMAGE.items() if not (label_maps and k in MOVING)}
        return _bind(_shift_images, kinds)
    floats = [t for t in x if t.is_floating_point()]
    if floats and all(t.dim() == 2 and float((t == 0).float().mean()) > MOSTLY_ZERO for t in x):
        return _bind(_shift_tensors, {**ANY, **SPARSE})
    return _bind(_shift_tensors, {**ANY, **NUMERIC} if floats else ANY)


def _bind(apply: Callable[..., tuple[Tensor, ...]], table: ShiftTable) -> dict[str, list[Shift]]:
    return {
        kind: [partial(apply, shift, strength) for strength in strengths]
        for kind, (shift, strengths) in table.items()
    }


def with_blends(shifts: Shifts, blends: int, seed: int = 0) -> list[tuple[tuple[str, ...], Shift]]:
    """Return every shift, then random sequences of two to five kinds; each with its kinds."""
    pairs: list[tuple[tuple[str, ...], Shift]] = [
        ((kind,), shift) for kind, strengths in shifts.items() for shift in strengths
    ]
    g = torch.Generator().manual_seed(seed)
    kinds = list(shifts)
    for number in range(blends):
        # At least one kind is absent from every blend: a curve without the others can be fitted.
        size = min(2 + number % 4, len(kinds) - 1)
        names = [kinds[i] for i in torch.randperm(len(kinds), generator=g)[:size].tolist()]
        parts = [
            shifts[kind][int(torch.randint(len(shifts[kind]), (), generator=g))] for kind in names
        ]
        pairs.append((tuple(names), partial(_apply_in_turn, parts)))
    return pairs


def _apply_in_turn(
    parts: Sequence[Shift], x: tuple[Tensor, ...], g: torch.Generator
) -> tuple[Tensor, ...]:
    for part in parts:
        x = part(x, g)
    return x


def uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw uniform numbers in [0, 1)."""
    return torch.rand(tuple(shape), generator=generator)


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers."""
    return torch.randn(tuple(shape), generator=generator)


# ---- images (N, C, H, W) in 0..1


def _shift_images(
    shift: TensorShift, strength: float, x: tuple[Tensor, ...], g: torch.Generator
) -> Inputs:
    """Apply a shift in 0..1; spectrograms and normalized images have another range."""
    images = x[0].cpu().float()
    low, high = images.min(), images.max()
    width = (high - low).clamp(min=1e-12)
    shifted = shift((images - low) / width, strength, g).clamp(0, 1)
    return Inputs.like(x, [(shifted * width + low).to(x[0])])


def add_noise(x: Tensor, std: float, g: torch.Generator) -> Tensor:
    """Add Gaussian noise."""
    return x + std * normal(x.shape, g)


def salt_and_pepper(x: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Set a fraction of the pixels to black or white."""
    n, _, h, w = x.shape
    u = uniform((n, 1, h, w), g)
    return torch.where(u < fraction / 2, 0.0, torch.where(u > 1 - fraction / 2, 1.0, x))


def blur(x: Tensor, width: float, g: torch.Generator) -> Tensor:
    """Blur with a Gaussian; `width` is its standard deviation in images of 32 pixels."""
    sigma = width * min(x.shape[2:]) / 32
    radius = max(1, round(2 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=x.dtype)
    kernel = torch.exp(-offsets.square() / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    channels = x.reshape(-1, 1, *x.shape[2:])
    padded = F.pad(channels, (radius, radius, radius, radius), mode="replicate")
    rows = F.conv2d(padded, kernel.view(1, 1, 1, -1))
    return F.conv2d(rows, kernel.view(1, 1, -1, 1)).reshape(x.shape)


def pixelate(x: Tensor, factor: float, g: torch.Generator) -> Tensor:
    """Reduce the resolution."""
    small = F.interpolate(x, scale_factor=1 / factor, mode="area")
    return F.interpolate(small, size=x.shape[2:], mode="nearest")


def reduce_contrast(x: Tensor, factor: float, g: torch.Generator) -> Tensor:
    """Scale the contrast around each image's mean."""
    mean = x.mean((1, 2, 3), keepdim=True)
    return mean + factor * (x - mean)


def darken(x: Tensor, factor: float, g: torch.Generator) -> Tensor:
    """Scale the brightness."""
    return factor * x


def brighten(x: Tensor, offset: float, g: torch.Generator) -> Tensor:
    """Add to the brightness."""
    return x + offset


def invert(x: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Invert the first fraction of the images."""
    chosen = torch.arange(len(x)).view(-1, 1, 1, 1) < round(fraction * len(x))
    return torch.where(chosen, 1 - x, x)


def blend_texture(x: Tensor, weight: float, g: torch.Generator) -> Tensor:
    """Blend with smooth random colours."""
    n, c, h, w = x.shape
    patches = uniform((n, c, max(2, h // 6), max(2, w // 6)), g)
    return (1 - weight) * x + weight * F.interpolate(patches, size=(h, w), mode="bilinear")


def occlude(x: Tensor, side: float, g: torch.Generator) -> Tensor:
    """Cover a random square with grey; `side` is relative to the image."""
    n, _, h, w = x.shape
    top, left = uniform((n, 1, 1, 1), g) * (1 - side) * h, uniform((n, 1, 1, 1), g) * (1 - side) * w
    row, column = torch.arange(h).view(1, 1, h, 1), torch.arange(w).view(1, 1, 1, w)
    covered = (row >= top) & (row < top + side * h) & (column >= left) & (column < left + side * w)
    return torch.where(covered, 0.5, x)


def rotate(x: Tensor, degrees: float, g: torch.Generator) -> Tensor:
    """Rotate to a random side."""
    return _warp(x, angle=degrees * _random_signs(len(x), g))


def zoom(x: Tensor, factor: float, g: torch.Generator) -> Tensor:
    """Zoom around the centre."""
    return _warp(x, zoom=torch.full((len(x),), factor))


def translate(x: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Move by a fraction of the sides in a random diagonal direction."""
    signs = torch.stack([_random_signs(len(x), g), _random_signs(len(x), g)], 1)
    return _warp(x, shift=2 * fraction * signs)


def _random_signs(n: int, g: torch.Generator) -> Tensor:
    return torch.where(uniform((n,), g) < 0.5, -1.0, 1.0)


def _warp(
    x: Tensor, angle: Tensor | None = None, zoom: Tensor | None = None, shift: Tensor | None = None
) -> Tensor:
    """Rotate (degrees), zoom and shift (half sides) around the centre; borders are repeated."""
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


IMAGE: ShiftTable = {
    "noise": (add_noise, (0.03, 0.1, 0.2, 0.35, 0.7)),
    "specks": (salt_and_pepper, (0.02, 0.06, 0.15, 0.3, 0.6)),
    "blur": (blur, (0.6, 1.0, 1.7, 2.8, 5.0)),
    "coarse": (pixelate, (1.5, 2, 3, 4, 8)),
    "contrast": (reduce_contrast, (0.7, 0.45, 0.25, 0.12, 0.05)),
    "dark": (darken, (0.7, 0.45, 0.25, 0.12, 0.05)),
    "bright": (brighten, (0.1, 0.2, 0.35, 0.55, 0.85)),
    "inversion": (invert, (0.1, 0.25, 0.5, 0.75, 1.0)),
    "texture": (blend_texture, (0.15, 0.3, 0.5, 0.7, 0.9)),
    "hidden": (occlude, (0.15, 0.25, 0.4, 0.55, 0.8)),
    "rotation": (rotate, (5, 12, 22, 40, 75)),
    "zoom_out": (zoom, (0.93, 0.83, 0.7, 0.55, 0.4)),
    "zoom_in": (zoom, (1.1, 1.25, 1.4, 1.7, 2.2)),
    "move": (translate, (0.03, 0.06, 0.1, 0.16, 0.25)),
}
MOVING = ("rotation", "zoom_out", "zoom_in", "move")


# ---- other inputs: vectors, signals, counts, tokens


def _shift_tensors(
    shift: TensorShift, strength: float, x: tuple[Tensor, ...], g: torch.Generator
) -> tuple[Tensor, ...]:
    """Apply a shift to every input it is meant for; integers are tokens, not quantities."""
    for_tokens = shift in {function for function, _ in (ANY | SPARSE).values()}

    def apply(t: Tensor) -> Tensor:
        if t.is_floating_point() or (for_tokens and not (len(x) > 1 and _is_mask(t))):
            return shift(t.cpu(), strength, g).to(t)
        return t

    return map_inputs(apply, x)


def _is_mask(t: Tensor) -> bool:
    """Return whether integers only say which entries of another input count."""
    return t.dtype == torch.bool or bool(((t == 0) | (t == 1)).all())


def drop_entries(t: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Set a fraction of the entries to zero."""
    return torch.where(uniform(t.shape, g) < fraction, torch.zeros_like(t), t)


def drop_features(t: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Set a fraction of the features to zero in every sample."""
    return torch.where(uniform(t.shape[1:], g) < fraction, torch.zeros_like(t), t)


def exchange_entries(t: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Replace a fraction of the entries by those of another sample."""
    return torch.where(uniform(t.shape, g) < fraction, t[torch.randperm(len(t), generator=g)], t)


def add_relative_noise(t: Tensor, stds: float, g: torch.Generator) -> Tensor:
    """Add Gaussian noise in units of the standard deviation."""
    return t + stds * t.float().std() * normal(t.shape, g)


def add_offset(t: Tensor, stds: float, g: torch.Generator) -> Tensor:
    """Add a constant in units of the standard deviation."""
    return t + stds * t.float().std()


def rescale(t: Tensor, factor: float, g: torch.Generator) -> Tensor:
    """Multiply by a constant."""
    return factor * t


def exchange_features(t: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Permute a fraction of the features among each other, alike in every sample."""
    chosen = (uniform(t.shape[1:2], g) < fraction).nonzero().flatten()
    result = t.clone()
    result[:, chosen] = t[:, chosen[torch.randperm(len(chosen), generator=g)]]
    return result


def merge_samples(t: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Add a fraction of the entries of another sample."""
    other = t[torch.randperm(len(t), generator=g)]
    added = torch.where(uniform(t.shape, g) < fraction, other, torch.zeros_like(t))
    return torch.maximum(t, added)


def replace_entries(t: Tensor, fraction: float, g: torch.Generator) -> Tensor:
    """Move a fraction of the entries of each sample to random features."""
    order = uniform(t.flatten(1).shape, g).argsort(1)
    moved = t.flatten(1).gather(1, order).reshape(t.shape)
    kept = torch.where(uniform(t.shape, g) < fraction, torch.zeros_like(t), t)
    added = torch.where(uniform(t.shape, g) < fraction, moved, torch.zeros_like(t))
    return torch.maximum(kept, added)


FRACTIONS = (0.1, 0.25, 0.45, 0.7, 0.9)
ANY: ShiftTable = {
    "dropped": (drop_entries, FRACTIONS),
    "columns_dropped": (drop_features, FRACTIONS),
    "exchanged": (exchange_entries, FRACTIONS),
}
SPARSE: ShiftTable = {
    "columns_exchanged": (exchange_features, FRACTIONS),
    "merged": (merge_samples, FRACTIONS),
    "replaced": (replace_entries, FRACTIONS),
}
NUMERIC: ShiftTable = {
    "noise": (add_relative_noise, (0.25, 0.6, 1.2, 2.0, 4.0)),
    "offset": (add_offset, (0.25, 0.6, 1.2, 2.0, 4.0)),
    "smaller": (rescale, (0.8, 0.55, 0.3, 0.15, 0.05)),
    "larger": (rescale, (1.3, 1.8, 3.0, 5.0, 10.0)),
}
