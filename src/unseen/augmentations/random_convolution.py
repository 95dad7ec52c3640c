"""Progressive random convolutions: one random 3x3 layer applied repeatedly (Choi et al., 2023).

One pass is a deformable convolution, instance normalisation, a random affine map per channel and
tanh. The weights are drawn once per group of images and shared by its images and passes: more
passes change the texture more, while the small kernel preserves shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.augmentations.settings import Count, Positive, Probability, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs

KERNEL = 3
EPSILON = 1e-5  # of the normalisation, as in torch


@augmentation
def randconv(
    x: Tensor,
    most: Count = 10,
    wobble: Positive = 0.2,
    share: Probability = 0.5,
    layers: Count = 1,
) -> Tensor:
    """Apply 1 to `most` passes to a random fraction of the images.

    Args:
        most: Largest number of passes; the number is uniform and shared by a group of images.
        wobble: Upper bound of the offsets' standard deviation in pixels; the paper uses 0.2 for
            32x32 images and 0.5 for 224x224.
        share: Probability that an image is changed. The paper trains on original and changed
            images together.
        layers: Number of random layers; the images are divided among them. The paper has one for
            all images of a batch.
    """
    x = in_unit_range(images(inputs(x), "randconv"), "randconv")
    _, channels, height, width = x.shape
    selected = torch.rand(len(x)) < share
    drawn = [
        (int(torch.randint(1, most + 1, ())), draw_layer(channels, height, width, wobble))
        for _ in range(min(layers, max(1, int(selected.sum()))))
    ]
    if not selected.any():
        return x
    drawn.sort(key=lambda pair: -pair[0])
    rows = selected.nonzero()[:, 0]
    if layers > 1:
        rows = rows[torch.randperm(len(rows))]
    out = convolve_repeatedly(
        x[rows.to(x.device)], [layer for _, layer in drawn], [passes for passes, _ in drawn]
    )
    result = x.clone()
    result[rows.to(x.device)] = (out + 1) / 2  # from tanh's range to 0..1
    return result


class RandomLayer(NamedTuple):
    """A random layer, drawn on the CPU so that a seed gives the same layer on every device."""

    weight: Tensor  # (C, C, 3, 3)
    gain: Tensor  # (C, 1, 1)
    offset: Tensor  # (C, 1, 1)
    shifts: Tensor  # (9, H, W, 2) of the taps in pixels, as (x, y)


def draw_layer(channels: int, height: int, width: int, wobble: float) -> RandomLayer:
    """Draw a layer for images of this size."""
    spread = _uniform(1e-3, 1.0)  # width of the Gaussian falloff of the kernel
    taps = torch.arange(KERNEL) - KERNEL // 2
    falloff = torch.exp(-(taps[:, None] ** 2 + taps**2) / (2 * spread**2))
    weight = torch.randn(channels, channels, KERNEL, KERNEL) * falloff / (KERNEL * channels**0.5)
    gain, offset = (0.5 * torch.randn(channels, 1, 1) for _ in range(2))
    shifts = _uniform(1e-3, wobble) * torch.randn(KERNEL * KERNEL, height, width, 2)
    return RandomLayer(weight, gain, offset, shifts)


def convolve_repeatedly(x: Tensor, layers: Sequence[RandomLayer], passes: Sequence[int]) -> Tensor:
    """Divide images among layers and apply each layer as often as `passes` says, most first.

    A pixel of all images of a group is one row of memory, (G, H * W, C, N), so that a tap reads
    them at once.
    """
    count, channels, height, width = x.shape
    groups, size = len(layers), -(-count // len(layers))
    whole = x[torch.arange(groups * size, device=x.device) % count]  # the last group is filled up
    h = whole.reshape(groups, size, channels, height * width).permute(0, 3, 2, 1).contiguous()
    weight, gain, offset, shifts = (
        torch.stack(parts).to(x.device, x.dtype) for parts in zip(*layers, strict=True)
    )
    gain, offset, taps = gain[:, None, :, 0], offset[:, None, :, 0], bilinear_taps(shifts)
    for done in range(passes[0]):
        still = sum(done < n for n in passes)  # groups with passes left
        out = deformable_convolution(h[:still], weight[:still], Taps(*(t[:still] for t in taps)))
        out -= out.mean(dim=1, keepdim=True)
        variance = out.square().mean(dim=1, keepdim=True)
        out = out.mul_(gain[:still] * (variance + EPSILON).rsqrt()).add_(offset[:still]).tanh_()
        h = out if still == groups else torch.cat([out, h[still:]])
    return h.permute(0, 3, 2, 1).reshape(groups * size, *x.shape[1:])[:count]


class Taps(NamedTuple):
    """What every pixel of a group reads: 4 pixels for each of 9 taps, and their weights."""

    rows: Tensor  # (G, H * W, 36), of a table with 9 rows, one for each tap, for each pixel
    weights: Tensor  # (G, H * W, 36)


def bilinear_taps(shifts: Tensor) -> Taps:
    """Return what the taps of 3x3 kernels read when they are shifted (G, 9, H, W, 2) as (x, y)."""
    groups, taps, height, width, _ = shifts.shape
    steps = torch.arange(KERNEL, device=shifts.device) - KERNEL // 2
    across, down = steps.repeat(KERNEL), steps.repeat_interleave(KERNEL)  # in row-major order
    x = torch.arange(width, device=shifts.device) + across[:, None, None] + shifts[..., 0]
    y = torch.arange(height, device=shifts.device)[:, None] + down[:, None, None] + shifts[..., 1]
    tap = torch.arange(taps, device=shifts.device)[:, None, None]
    left, top = x.floor(), y.floor()
    right, low = x - left, y - top  # distances, which are the weights of the far pixels
    rows, weights = [], []
    for row, of_row in ((top, 1 - low), (top + 1, low)):
        for column, of_column in ((left, 1 - right), (left + 1, right)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            pixel = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            rows.append(taps * pixel.long() + tap)
            weights.append(of_row * of_column * inside)  # zero outside of the image
    shape = (groups, height * width, 4 * taps)
    return Taps(
        *(torch.stack(t, dim=1).flatten(1, 2).flatten(2).mT.reshape(shape) for t in (rows, weights))
    )


def deformable_convolution(h: Tensor, weight: Tensor, taps: Taps) -> Tensor:
    """Convolve groups of images (G, H * W, C, N) with a kernel (G, O, C, 3, 3) and taps for each.

    Channels are mixed first, for each tap. Then every pixel is a weighted sum of rows of a table,
    which `embedding_bag` computes for all images at once, faster than `grid_sample`.
    """
    groups, pixels, channels, size = h.shape
    kernels = weight.flatten(3).permute(0, 3, 1, 2).flatten(1, 2)  # (G, 9 * O, C)
    mixed = kernels @ h.transpose(1, 2).reshape(groups, channels, -1)  # (G, 9 * O, H * W * N)
    table = mixed.reshape(groups, -1, pixels, size).transpose(1, 2)
    table = table.reshape(groups * pixels * KERNEL * KERNEL, -1)  # O * N columns
    first = torch.arange(groups, device=h.device) * (KERNEL * KERNEL * pixels)
    out = F.embedding_bag(
        (taps.rows + first[:, None, None]).flatten(0, 1),
        table,
        per_sample_weights=taps.weights.flatten(0, 1),
        mode="sum",
    )
    return out.reshape(groups, pixels, -1, size)


def _uniform(low: float, high: float) -> float:
    return float(low + (high - low) * torch.rand(()))
