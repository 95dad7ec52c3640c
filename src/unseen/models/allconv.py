"""The paper's small backbone for CIFAR-10: convolutions only, up to the last layer."""

from __future__ import annotations

import math

from torch import Tensor, nn

from unseen.errors import UnseenError


class AllConv(nn.Module):
    """3 x conv3x3(96), pool, 3 x conv3x3(192), pool, 2 x conv1x1(192), mean over space, linear; BN and GELU after each conv.

    For images (N, 3, H, W) from 0 to 1. `width` scales the channels: 0.25 has 24 and 48.
    """

    def __init__(self, classes: int = 10, width: float = 1.0) -> None:
        super().__init__()
        few, many = scaled(96, width), scaled(192, width)
        self.conv1 = nn.Conv2d(3, few, 3, padding=1, bias=False)  # batch norm has its own shift
        self.block1 = nn.Sequential(
            *_normed(few), *_conv(few, few, 3), *_conv(few, few, 3), nn.MaxPool2d(2)
        )  # (N, 96, 16, 16)
        self.block2 = nn.Sequential(
            *_conv(few, many, 3), *_conv(many, many, 3), *_conv(many, many, 3), nn.MaxPool2d(2)
        )  # (N, 192, 8, 8)
        self.block3 = nn.Sequential(*_conv(many, many, 1), *_conv(many, many, 1))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(many, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(self.pool(x))


def scaled(channels: int, width: float) -> int:
    """So many channels at that width: at least one."""
    if not (math.isfinite(width) and width > 0):
        raise UnseenError(
            f"width must be a number above 0, not {width!r}: 1 is the published width, 0.25 a quarter of it"
        )
    return max(1, round(channels * width))


def _conv(before: int, after: int, size: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, size, padding=size // 2, bias=False), *_normed(after)


def _normed(channels: int) -> tuple[nn.Module, ...]:
    return nn.BatchNorm2d(channels), nn.GELU()
