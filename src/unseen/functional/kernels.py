"""Learned random convolutions: a kernel of its own for every image and draw.

    h+ = standardise(conv(h; W) + b),   (W, b) = (identity, 0) + e,   e ~ N(mu, sigma)

After random convolutions (Xu et al., ICLR 2021), whose kernels are not learned.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

VARIANCE_FLOOR = 1e-6  # an image of one colour has no variance to divide by


def kernel_width(channels: int, size: int) -> int:
    """Return the number of weights and offsets of a kernel."""
    return channels * channels * size * size + channels


def perturb_by_kernel(h: Tensor, e: Tensor, size: int) -> Tensor:
    """Convolve each image with its kernels: (N, C, H, W) and (N, R, F) give (N, R, C, H, W).

    e: deviations of R kernels from the identity, in units in which the weights, or the offsets, of
        size 1 change an image by about its own size. The result keeps the image's mean and standard
        deviation over channels and pixels, so that no gain or offset of all of it can grow.
    """
    n, channels, height, width = h.shape
    rows, fan_in = e.shape[1], channels * size * size
    weights = e[..., :-channels].reshape(n, rows * channels, fan_in) / math.sqrt(fan_in)
    edge = size // 2
    patches = F.unfold(F.pad(h, (edge, edge, edge, edge), mode="replicate"), size)
    change = (weights @ patches).reshape(n, rows, channels, height * width)
    spread, mean = _moments(h.reshape(n, 1, channels, height * width))
    out = h.reshape(n, 1, channels, height * width) + change
    out = out + e[..., -channels:, None] * spread
    own_spread, own_mean = _moments(out)
    out = (out - own_mean) * (spread / own_spread) + mean
    return out.reshape(n, rows, channels, height, width)


def _moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return standard deviation and mean of each image, over its channels and pixels."""
    variance = images.var((-2, -1), correction=0, keepdim=True)
    return (variance + VARIANCE_FLOOR).sqrt(), images.mean((-2, -1), keepdim=True)
