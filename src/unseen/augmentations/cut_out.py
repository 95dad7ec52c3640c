"""Cutout: a square of the image, anywhere, is set to zero (DeVries and Taylor, 2017)."""

from __future__ import annotations

import torch
from torch import Tensor


def cutout(x: Tensor, side: float = 0.5) -> Tensor:
    """Blank one square a sample, of `side` times the image's shorter side, centred anywhere, so that part may fall outside."""
    n, _, height, width = x.shape
    half = side * min(height, width) / 2
    middle = torch.rand(n, 2, 1, device=x.device) * torch.tensor(
        [[height], [width]], device=x.device
    )
    rows = (torch.arange(height, device=x.device) + 0.5 - middle[:, 0]).abs() < half  # (N, H)
    columns = (torch.arange(width, device=x.device) + 0.5 - middle[:, 1]).abs() < half  # (N, W)
    return x.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)
