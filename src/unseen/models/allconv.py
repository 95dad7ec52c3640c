"""AllConv, the all-convolutional backbone for CIFAR-10."""

from __future__ import annotations

import math

from torch import Tensor, nn

from unseen.errors import UnseenError


class AllConv(nn.Module):
    """3 x conv3x3(96), pool, 3 x conv3x3(192), pool, 2 x conv1x1(192), global mean, linear.

    Batch norm and GELU follow each convolution. Input: images (N, 3, H, W) in 0..1.

    Args:
        classes: Number of outputs.
        width: Factor on the number of channels.
    """

    def __init__(self, classes: int = 10, width: float = 1.0) -> None:
        super().__init__()
        few, many = scale_channels(96, width), scale_channels(192, width)
        self.conv1 = nn.Conv2d(3, few, 3, padding=1, bias=False)  # batch norm has a bias
        self.block1 = nn.Sequential(
            *_norm(few), *_conv(few, few, 3), *_conv(few, few, 3), nn.MaxPool2d(2)
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


def scale_channels(channels: int, width: float) -> int:
    """Return the number of channels at a width factor, at least 1."""
    if not (math.isfinite(width) and width > 0):
        raise UnseenError(
            f"width must be a number above 0, not {width!r}: 1 is the published width"
        )
    return max(1, round(channels * width))


def _conv(inputs: int, outputs: int, size: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False), *_norm(outputs)


def _norm(channels: int) -> tuple[nn.Module, ...]:
    return nn.BatchNorm2d(channels), nn.GELU()
