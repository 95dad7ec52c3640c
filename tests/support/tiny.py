"""A small model and batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch


class TinyNet(nn.Module):
    """conv-pool-conv-fc-fc on (N, 2, 8, 8), smooth enough for finite differences."""

    def __init__(self, classes: int = 3, norm: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(4, 5, 3)
        self.fc1 = nn.Linear(5, 6)
        self.fc2 = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(torch.tanh(self.norm(self.conv1(x))), 2)
        x = torch.tanh(self.conv2(x).mean((2, 3)))
        return self.fc2(torch.tanh(self.fc1(x)))


def tiny_batch(
    n: int = 4, classes: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Batch:
    g = torch.Generator().manual_seed(seed)
    return Batch(
        (torch.randn(n, 2, 8, 8, generator=g, dtype=dtype),),
        torch.randint(classes, (n,), generator=g),
    )
