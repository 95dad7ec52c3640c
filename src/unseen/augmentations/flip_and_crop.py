"""Flips and crops: what nearly every training on CIFAR-10 begins with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4  # pixels on each side, of He et al. 2016 for 32x32 images


def flip_crop(x: Tensor, padding: int = PADDING) -> Tensor:
    """Each image mirrored with chance 1/2 and moved by up to `padding` pixels each way, black where nothing was."""
    count, _, height, width = x.shape
    down, right = (torch.randint(2 * padding + 1, (count,)).to(x.device) for _ in range(2))
    mirrored = (torch.rand(count) < 0.5).to(x.device)
    rows = down[:, None] + torch.arange(height, device=x.device)  # (N, H)
    columns = torch.arange(width, device=x.device).expand(count, width)
    columns = right[:, None] + torch.where(mirrored[:, None], width - 1 - columns, columns)
    each = torch.arange(count, device=x.device)[:, None, None]
    padded = F.pad(x, (padding,) * 4)
    return padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )
