"""The operations of AugMix, one of which is drawn for every image.

As in the paper, none of them is among the corruptions of CIFAR-10-C and ImageNet-C.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unseen.augmentations.random_affine import warp

COLOUR = ("autocontrast", "equalize", "posterize", "solarize")
GEOMETRY = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
LEAST_LEVEL, LEVELS = 0.1, 10  # levels run from 0.1 to the severity, out of 10


def random_operations(x: Tensor, severity: float, geometry: bool = True) -> Tensor:
    """Apply one random operation at a random level to each image (N, C, H, W) in 0..1."""
    names = COLOUR + (GEOMETRY if geometry else ())
    chosen = torch.randint(len(names), (len(x),))
    levels = LEAST_LEVEL + (severity - LEAST_LEVEL) * torch.rand(len(x))
    signs = 2.0 * torch.randint(2, (len(x),)) - 1
    return apply_operations(x, [names[i] for i in chosen.tolist()], levels, signs)


def apply_operations(x: Tensor, names: list[str], levels: Tensor, signs: Tensor) -> Tensor:
    """Apply names[n] at levels[n] to image n; moves go to the side that signs[n] gives."""
    out = x.clone()
    for name in COLOUR:
        if rows := [n for n, own in enumerate(names) if own == name]:
            level = levels[rows].to(x.device, x.dtype)
            out[rows] = _COLOUR[name](x[rows], level[:, None, None, None])
    if rows := [n for n, own in enumerate(names) if own in GEOMETRY]:
        maps = _maps([names[n] for n in rows], levels[rows], signs[rows], x.shape[3])
        out[rows] = warp(x[rows], maps.to(x.device, x.dtype), "zeros")
    return out


def autocontrast(x: Tensor, level: Tensor | None = None) -> Tensor:
    """Stretch every channel of an image to 0..1; one of a single value stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-12), x)


def equalize(x: Tensor, level: Tensor | None = None) -> Tensor:
    """Equalize the histogram of 256 values of every channel, as Pillow does."""
    pixels = (x.flatten(2).flatten(0, 1) * 255).round().long()  # (N * C, H * W)
    counts = torch.zeros(len(pixels), 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(1, pixels, torch.ones_like(pixels))
    last = counts.gather(1, pixels.amax(1, keepdim=True))  # count of the largest value
    step = (pixels.shape[1] - last) // 255
    before = counts.cumsum(1) - counts
    table = ((before + step // 2) // step.clamp_min(1)).clamp(0, 255)
    out = torch.where(step > 0, table.gather(1, pixels), pixels)
    return (out / 255).to(x.dtype).reshape(x.shape)


def posterize(x: Tensor, level: Tensor) -> Tensor:
    """Keep the leading bits of 8: 4, or fewer at high levels."""
    step = 2.0 ** (8 - (4 - (level * 4 / LEVELS).floor()))
    return ((x * 255).round() / step).floor() * step / 255


def solarize(x: Tensor, level: Tensor) -> Tensor:
    """Invert pixels above a threshold, which is lower at high levels."""
    threshold = 256 - (level * 256 / LEVELS).floor()
    return torch.where((x * 255).round() >= threshold, 1 - x, x)


_COLOUR = {
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "solarize": solarize,
}


def _maps(names: list[str], levels: Tensor, signs: Tensor, width: int) -> Tensor:
    """Return affine maps (N, 2, 3) from output to input, as `warp` takes them."""
    degrees = signs * (levels * 30 / LEVELS).floor()
    shear = signs * levels * 0.3 / LEVELS
    shift = signs * (levels * (width / 3) / LEVELS).floor() * 2 / width  # in halves of the side
    maps = torch.eye(2, 3).repeat(len(names), 1, 1)
    for n, name in enumerate(names):
        if name == "rotate":
            angle = math.radians(float(degrees[n]))
            maps[n, :, :2] = torch.tensor(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            )
        elif name == "shear_x":
            maps[n, 0, 1] = shear[n]
        elif name == "shear_y":
            maps[n, 1, 0] = shear[n]
        else:
            maps[n, 0 if name == "translate_x" else 1, 2] = shift[n]
    return maps
