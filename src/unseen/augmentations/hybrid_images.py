"""HybridAugment++: frequencies of several images in one (Yucel et al., ICCV 2023).

The label is that of the image that gives the low frequencies and their phase.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.augmentations.image_operations import random_operations
from unseen.augmentations.settings import Count, Positive, Probability, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs

SEVERITY = 3.0  # of the operations that make versions of one image


@augmentation
def hybrid(
    x: Tensor,
    mode: Literal["paired", "single"] = "paired",
    share: Probability = 0.6,
    amplitude_share: Probability = 0.6,
    kernel: Count = 3,
    sigma: Positive = 0.5,
    geometry: bool = True,
) -> Tensor:
    """Replace the high frequencies of an image, and the amplitudes of its low ones.

    Args:
        mode: Where they come from: two other images of the batch ("paired"), or versions of the
            same image after random operations ("single").
        share: Probability that an image is changed; 0.6 paired, 0.5 single in the paper.
        amplitude_share: Probability that the amplitudes of such an image are replaced too.
        kernel: Side of the Gaussian filter that separates low from high frequencies; odd.
        sigma: Its standard deviation in pixels.
        geometry: Whether the operations of "single" rotate, shear and shift.
    """
    x = in_unit_range(images(inputs(x), "hybrid"), "hybrid")
    if mode == "single":
        x = random_operations(x, SEVERITY, geometry)
        others = random_operations(x, SEVERITY, geometry)
        low, high = low_pass(x, kernel, sigma), others - low_pass(others, kernel, sigma)
        amplitudes = random_operations(low.clamp(0, 1), SEVERITY, geometry)
    else:
        low = low_pass(x, kernel, sigma)
        high = (x - low)[torch.randperm(len(x)).to(x.device)]
        amplitudes = low[torch.randperm(len(x)).to(x.device)]
    recombined = _where(amplitude_share, swap_amplitudes(low, amplitudes), low)
    return _where(share, (recombined + high).clamp(0, 1), x)


def low_pass(x: Tensor, kernel: int = 3, sigma: float = 0.5) -> Tensor:
    """Blur images with a Gaussian filter of `kernel` pixels; borders are reflected."""
    reach = torch.arange(kernel, device=x.device, dtype=x.dtype) - kernel // 2
    weights = torch.softmax(-(reach**2) / (2 * sigma**2), dim=0)
    flat = x.flatten(0, 1)[:, None]
    padded = F.pad(flat, (kernel // 2, (kernel - 1) // 2) * 2, mode="reflect")
    down = F.conv2d(padded, weights[:, None].expand(1, 1, kernel, 1))
    return F.conv2d(down, weights.expand(1, 1, 1, kernel)).reshape(x.shape)


def swap_amplitudes(x: Tensor, others: Tensor) -> Tensor:
    """Return images with the phases of x and the amplitudes of the others, over C, H and W."""
    own = torch.fft.rfftn(x, dim=(1, 2, 3))
    sizes = torch.fft.rfftn(others, dim=(1, 2, 3)).abs()
    spectrum = torch.polar(sizes, own.angle())
    return torch.fft.irfftn(spectrum, s=x.shape[1:], dim=(1, 2, 3))


def _where(probability: float, changed: Tensor, x: Tensor) -> Tensor:
    """Take the changed images with this probability."""
    rows = (torch.rand(len(x)) < probability).to(x.device)
    return torch.where(rows[:, None, None, None], changed, x)
