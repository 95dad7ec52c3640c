"""Progressive random convolutions: one random 3x3 layer, applied several times over (Choi et al., CVPR 2023).

Each pass is a deformable convolution, a standardisation of each image's channels, a random gain and offset, and tanh. Its
weights are drawn anew for every batch and shared by its images and its passes: the more passes, the stranger the texture,
while the small kernel keeps the shape.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.api import in_unit_range

KERNEL = 3


def randconv(x: Tensor, most: int = 10, wobble: float = 0.2, share: float = 0.5) -> Tensor:
    """Send a random `share` of the images through 1 to `most` passes; the others stay, as the paper trains on both.

    `wobble` bounds the deformation in pixels: 0.2 at 32x32, 0.5 at 224x224 in the paper.
    """
    in_unit_range(x, "randconv")
    strange = torch.rand(x.shape[0]) < share
    passes = int(torch.randint(1, most + 1, ()))
    layer = RandomLayer(x.shape[1], x.shape[2], x.shape[3], wobble).to(x)
    if not strange.any():
        return x
    rows = strange.to(x.device)
    out = x[rows]
    for _ in range(passes):
        out = layer(out)
    result = x.clone()
    result[rows] = (out + 1) / 2  # tanh's range to that of images
    return result


class RandomLayer:
    """One layer with everything drawn at random, on the CPU, so that a seed means the same on every device."""

    def __init__(self, channels: int, height: int, width: int, wobble: float) -> None:
        blur = _uniform(1e-3, 1.0)  # how fast a kernel falls off from its centre
        taps = torch.arange(KERNEL) - KERNEL // 2
        falloff = torch.exp(-(taps[:, None] ** 2 + taps**2) / (2 * blur**2))
        self.weight = (
            torch.randn(channels, channels, KERNEL, KERNEL) * falloff / (KERNEL * channels**0.5)
        )
        self.gain, self.offset = (0.5 * torch.randn(channels, 1, 1) for _ in range(2))
        shake = _uniform(1e-3, wobble) * torch.randn(KERNEL * KERNEL, height, width, 2)
        self.grid = sampling_grid(shake)

    def to(self, like: Tensor) -> RandomLayer:
        for name in ("weight", "gain", "offset", "grid"):
            setattr(self, name, getattr(self, name).to(like.device, like.dtype))
        return self

    def __call__(self, x: Tensor) -> Tensor:
        out = deformed_convolution(x, self.weight, self.grid)
        out = F.instance_norm(out)
        return torch.tanh(out * self.gain + self.offset)


def sampling_grid(shake: Tensor) -> Tensor:
    """Where each tap of each output pixel reads, (taps, H, W, 2) in pixels (x, y) around its place, in grid_sample's units."""
    taps, height, width, _ = shake.shape
    steps = torch.arange(KERNEL) - KERNEL // 2
    across, down = (
        steps.repeat(KERNEL),
        steps.repeat_interleave(KERNEL),
    )  # tap after tap, row by row
    x = torch.arange(width) + across[:, None, None] + shake[..., 0]
    y = torch.arange(height)[:, None] + down[:, None, None] + shake[..., 1]
    return torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1).reshape(
        taps * height, width, 2
    )


def deformed_convolution(x: Tensor, weight: Tensor, grid: Tensor) -> Tensor:
    """A convolution whose taps read where the grid says; the grid is the same for all images, so they share one lookup."""
    n, channels, height, width = x.shape
    flat = x.reshape(1, n * channels, height, width)
    read = F.grid_sample(
        flat, grid[None], mode="bilinear", padding_mode="zeros", align_corners=False
    )
    read = read.reshape(n, channels, KERNEL * KERNEL, height, width)
    return torch.einsum("nckhw,ock->nohw", read, weight.flatten(2))


def _uniform(low: float, high: float) -> float:
    return float(low + (high - low) * torch.rand(()))
