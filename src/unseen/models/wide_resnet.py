"""Wide residual networks for 32x32 images (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.models.allconv import scaled


class WideResNet(nn.Module):
    """conv3x3(16), three groups of residual blocks, BN, ReLU, mean over space, linear; WRN-40-2 unless told otherwise.

    For images (N, 3, H, W) from 0 to 1. `width` scales the groups' channels, which are 32, 64 and 128: 0.5 gives WRN-40-1.
    """

    def __init__(self, classes: int = 10, width: float = 1.0, depth: int = 40) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise UnseenError(f"depth must be 6 n + 4 layers, such as 16, 28 or 40, not {depth!r}")
        channels = [16, *(scaled(c, width) for c in (32, 64, 128))]
        self.conv1 = nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
        blocks = (depth - 4) // 6
        self.group1 = _group(channels[0], channels[1], blocks, stride=1)
        self.group2 = _group(channels[1], channels[2], blocks, stride=2)
        self.group3 = _group(channels[2], channels[3], blocks, stride=2)
        self.norm = nn.BatchNorm2d(channels[3])
        self.relu = nn.ReLU()
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(channels[3], classes)
        for layer in self.modules():
            if isinstance(
                layer, nn.Conv2d
            ):  # residual sums are not normalised, so the convolutions' scale counts
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.group3(self.group2(self.group1(self.conv1(x))))
        return self.fc(self.pool(self.relu(self.norm(x))))


class ResidualBlock(nn.Module):
    """BN, ReLU, conv3x3, BN, ReLU, conv3x3, added to the input; where the shape changes, to a conv1x1 of the first ReLU."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        same = before == after and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, after, 1, bias=False)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        first = self.relu1(self.norm1(x))
        out = self.conv2(self.relu2(self.norm2(self.conv1(first))))
        if self.shortcut is None:
            return out + x
        # The pixels are left out before the convolution, not by its stride, which comes to the same: a strided conv1x1 of few
        # channels writes beyond its memory in channels_last (uxlfoundation/oneDNN issue 6035).
        return out + self.shortcut(first[..., :: self.stride, :: self.stride])


def _group(before: int, after: int, blocks: int, stride: int) -> nn.Sequential:
    rest = (ResidualBlock(after, after, 1) for _ in range(blocks - 1))
    return nn.Sequential(ResidualBlock(before, after, stride), *rest)
