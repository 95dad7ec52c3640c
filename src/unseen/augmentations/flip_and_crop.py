"""Random horizontal flip and padded crop, the standard augmentation for CIFAR-10."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.augmentations.settings import NotNegativeInt, augmentation
from unseen.nn.inputs import images, inputs

PADDING = 4  # pixels per side, as in He et al. 2016 for 32x32 images


@augmentation
def flip_crop(x: Tensor, padding: NotNegativeInt = PADDING) -> Tensor:
    """Flip each image with probability 1/2 and shift it by up to `padding` pixels, zero-filled."""
    x = images(inputs(x), "flip_crop")
    count, _, height, width = x.shape
    down, right = (torch.randint(2 * padding + 1, (count,)).to(x.device) for _ in range(2))
    flip = (torch.rand(count) < 0.5).to(x.device)
    rows = down[:, None] + torch.arange(height, device=x.device)  # (N, H)
    columns = torch.arange(width, device=x.device).expand(count, width)
    columns = right[:, None] + torch.where(flip[:, None], width - 1 - columns, columns)
    sample = torch.arange(count, device=x.device)[:, None, None]
    padded = F.pad(x, (padding,) * 4)
    return padded.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )
