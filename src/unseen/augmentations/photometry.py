"""Colour and light: changes of each image that leave every pixel in its place."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unseen.augmentations.settings import NotNegative, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


@augmentation
def colour(
    x: Tensor,
    strength: NotNegative = 0.5,
    saturation: NotNegative = 1.0,
    balance: NotNegative = 0.5,
    contrast: NotNegative = 0.7,
) -> Tensor:
    """Change saturation, white balance and contrast of each image by amounts of its own.

    Args:
        strength: Factor of all amounts.
        saturation: Largest change of the saturation, around 1; 1 reaches grey and double.
        balance: Largest change of each channel's gain, as a natural logarithm.
        contrast: Largest change of the contrast, as a natural logarithm.
    """
    x = in_unit_range(images(inputs(x), "colour"), "colour")
    count, channels = x.shape[:2]
    drawn = strength * (2 * torch.rand(count, channels + 2) - 1)
    drawn = drawn.to(x.device, x.dtype)[:, :, None, None]
    grey = luma(x)
    out = grey + (1 + saturation * drawn[:, :1]).clamp_min(0) * (x - grey)
    out = out * torch.exp(balance * drawn[:, 2:])
    mean = out.mean((1, 2, 3), keepdim=True)
    return (mean + torch.exp(contrast * drawn[:, 1:2]) * (out - mean)).clamp_(0, 1)


@augmentation
def light(
    x: Tensor,
    strength: NotNegative = 0.5,
    exposure: NotNegative = 1.5,
    gamma: NotNegative = 0.7,
    gradient: NotNegative = 1.0,
    noise: NotNegative = 0.05,
) -> Tensor:
    """Change the light of each image: exposure, gamma, a gradient across it, and sensor noise.

    Args:
        strength: Factor of all amounts.
        exposure: Largest darkening or brightening, in stops (factors of 2).
        gamma: Largest change of the exponent, as a natural logarithm.
        gradient: Largest difference of exposure from the centre to the border, in stops.
        noise: Largest standard deviation of Gaussian noise; darker images have more of it.
    """
    x = in_unit_range(images(inputs(x), "light"), "light")
    count, _, height, width = x.shape
    drawn = strength * (2 * torch.rand(count, 4) - 1)
    spread = (strength * noise * torch.rand(count, 1, 1, 1)).to(x.device, x.dtype)
    grain = torch.randn(x.shape).to(x.device, x.dtype)
    drawn = drawn.to(x.device, x.dtype)[:, :, None, None]
    down = torch.linspace(-1, 1, height, device=x.device, dtype=x.dtype)[:, None]
    right = torch.linspace(-1, 1, width, device=x.device, dtype=x.dtype)
    stops = exposure * drawn[:, :1] + gradient * (drawn[:, 1:2] * down + drawn[:, 2:3] * right) / 2
    exponent = torch.exp(gamma * drawn[:, 3:])
    out = x.clamp_min(1e-4).pow(exponent) * torch.exp(math.log(2) * stops)
    return (out + spread * grain).clamp_(0, 1)


def luma(x: Tensor) -> Tensor:
    """Return the grey image (N, 1, H, W); of other than 3 channels, their mean."""
    if x.shape[1] != len(LUMA):
        return x.mean(1, keepdim=True)
    return (x * x.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
