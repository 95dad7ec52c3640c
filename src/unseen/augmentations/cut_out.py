"""Cutout: set a random square of the image to zero (DeVries and Taylor, 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from unseen.augmentations.settings import Positive, augmentation
from unseen.nn.inputs import images, inputs


@augmentation
def cutout(x: Tensor, side: Positive = 0.5) -> Tensor:
    """Set one random square per image to zero.

    Args:
        side: Side of the square as a fraction of the shorter image side. The centre is uniform
            over the image, so part of the square may lie outside.
    """
    x = images(inputs(x), "cutout")
    n, _, height, width = x.shape
    half = side * min(height, width) / 2
    centre = torch.rand(n, 2, 1, device=x.device) * torch.tensor(
        [[height], [width]], device=x.device
    )
    rows = (torch.arange(height, device=x.device) + 0.5 - centre[:, 0]).abs() < half  # (N, H)
    columns = (torch.arange(width, device=x.device) + 0.5 - centre[:, 1]).abs() < half  # (N, W)
    return x.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)
