"""A random 3x3 convolution of its own for every image, close to the identity."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.augmentations.settings import NotNegative, Probability, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs

KERNEL = 3
EPSILON = 1e-5


@augmentation
def random_kernel(
    x: Tensor,
    spread: NotNegative = 0.3,
    gain: NotNegative = 0.5,
    offset: NotNegative = 0.5,
    share: Probability = 1.0,
) -> Tensor:
    """Convolve, standardise and recolour each image with random numbers of its own.

    Args:
        spread: Standard deviation of the kernel's entries around those of the identity.
        gain: Standard deviation of the factor of each standardised channel, around 0: colours may
            be inverted.
        offset: Standard deviation of what is added to it.
        share: Probability that an image is changed.
    """
    x = in_unit_range(images(inputs(x), "random_kernel"), "random_kernel")
    count, channels = x.shape[:2]
    noise = torch.randn(count, channels, channels, KERNEL, KERNEL)
    colours = torch.randn(2, count, channels, 1)
    kernels = identity_kernel(channels) + spread * noise
    gains, offsets = gain * colours[0], offset * colours[1]
    out = convolve_each(x, *(t.to(x.device, x.dtype) for t in (kernels, gains, offsets)))
    if share == 1:
        return out
    selected = (torch.rand(count) < share).to(x.device)
    return torch.where(selected[:, None, None, None], out, x)


def identity_kernel(channels: int) -> Tensor:
    """Return the kernel (C, C, 3, 3) that changes nothing."""
    kernel = torch.zeros(channels, channels, KERNEL, KERNEL)
    kernel[:, :, KERNEL // 2, KERNEL // 2] = torch.eye(channels)
    return kernel


def convolve_each(x: Tensor, kernels: Tensor, gains: Tensor, offsets: Tensor) -> Tensor:
    """Convolve image n with kernels[n] (C, C, 3, 3), standardise, scale, shift; map to 0..1."""
    patches = F.unfold(x, KERNEL, padding=KERNEL // 2)  # (N, C * 9, H * W)
    out = kernels.flatten(2) @ patches
    variance, mean = torch.var_mean(out, dim=2, correction=0, keepdim=True)
    scale = gains * (variance + EPSILON).rsqrt()
    out = torch.tanh_(out.sub_(mean).mul_(scale).add_(offsets))
    return out.add_(1).div_(2).reshape(x.shape)
