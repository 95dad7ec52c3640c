"""Progressive random convolutions: one random 3x3 layer applied repeatedly (Choi et al., 2023).

One pass is a deformable convolution, instance normalisation, a random affine map per channel and
tanh. The weights are drawn once per batch and shared by its images and passes: more passes change
the texture more, while the small kernel preserves shapes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.augmentations.settings import Count, Positive, Probability, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs

KERNEL = 3


@augmentation
def randconv(
    x: Tensor, most: Count = 10, wobble: Positive = 0.2, share: Probability = 0.5
) -> Tensor:
    """Apply 1 to `most` passes to a random fraction of the images.

    Args:
        most: Largest number of passes; the number is uniform and shared by the batch.
        wobble: Upper bound of the offsets' standard deviation in pixels; the paper uses 0.2 for
            32x32 images and 0.5 for 224x224.
        share: Probability that an image is changed. The paper trains on original and changed
            images together.
    """
    x = in_unit_range(images(inputs(x), "randconv"), "randconv")
    selected = torch.rand(x.shape[0]) < share
    passes = int(torch.randint(1, most + 1, ()))
    layer = RandomLayer(x.shape[1], x.shape[2], x.shape[3], wobble).to(x)
    if not selected.any():
        return x
    rows = selected.to(x.device)
    out = x[rows]
    for _ in range(passes):
        out = layer(out)
    result = x.clone()
    result[rows] = (out + 1) / 2  # from tanh's range to 0..1
    return result


class RandomLayer:
    """A random layer, drawn on the CPU so that a seed gives the same layer on every device."""

    def __init__(self, channels: int, height: int, width: int, wobble: float) -> None:
        spread = _uniform(1e-3, 1.0)  # width of the Gaussian falloff of the kernel
        taps = torch.arange(KERNEL) - KERNEL // 2
        falloff = torch.exp(-(taps[:, None] ** 2 + taps**2) / (2 * spread**2))
        self.weight = (
            torch.randn(channels, channels, KERNEL, KERNEL) * falloff / (KERNEL * channels**0.5)
        )
        self.gain, self.offset = (0.5 * torch.randn(channels, 1, 1) for _ in range(2))
        offsets = _uniform(1e-3, wobble) * torch.randn(KERNEL * KERNEL, height, width, 2)
        self.grid = sampling_grid(offsets)

    def to(self, like: Tensor) -> RandomLayer:
        for name in ("weight", "gain", "offset", "grid"):
            setattr(self, name, getattr(self, name).to(like.device, like.dtype))
        return self

    def __call__(self, x: Tensor) -> Tensor:
        out = deformable_convolution(x, self.weight, self.grid)
        out = F.instance_norm(out)
        return torch.tanh(out * self.gain + self.offset)


def sampling_grid(offsets: Tensor) -> Tensor:
    """Convert pixel offsets (taps, H, W, 2), as (x, y), to a grid for `F.grid_sample`."""
    taps, height, width, _ = offsets.shape
    steps = torch.arange(KERNEL) - KERNEL // 2
    across, down = steps.repeat(KERNEL), steps.repeat_interleave(KERNEL)  # taps in row-major order
    x = torch.arange(width) + across[:, None, None] + offsets[..., 0]
    y = torch.arange(height)[:, None] + down[:, None, None] + offsets[..., 1]
    return torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1).reshape(
        taps * height, width, 2
    )


def deformable_convolution(x: Tensor, weight: Tensor, grid: Tensor) -> Tensor:
    """Convolve with taps sampled at `grid`, shared by all images of the batch."""
    n, channels, height, width = x.shape
    flat = x.reshape(1, n * channels, height, width)
    taps = F.grid_sample(
        flat, grid[None], mode="bilinear", padding_mode="zeros", align_corners=False
    )
    taps = taps.reshape(n, channels, KERNEL * KERNEL, height, width)
    return torch.einsum("nckhw,ock->nohw", taps, weight.flatten(2))


def _uniform(low: float, high: float) -> float:
    return float(low + (high - low) * torch.rand(()))
