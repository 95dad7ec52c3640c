"""Wide residual networks for 32x32 images (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.models.allconv import scale_channels


class WideResNet(nn.Module):
    """conv3x3(16), three residual groups, BN, ReLU, global mean, linear; default WRN-40-2.

    Input: images (N, 3, H, W) in 0..1.

    Args:
        classes: Number of outputs.
        width: Factor on the channels of the groups, 32, 64 and 128; 0.5 gives WRN-40-1.
        depth: Number of layers, 6 n + 4.
    """

    def __init__(self, classes: int = 10, width: float = 1.0, depth: int = 40) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise UnseenError(f"depth must be 6 n + 4 layers, such as 16, 28 or 40, not {depth!r}")
        channels = [16, *(scale_channels(c, width) for c in (32, 64, 128))]
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
            if isinstance(layer, nn.Conv2d):  # residual sums are not normalised, so scale matters
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.group3(self.group2(self.group1(self.conv1(x))))
        return self.fc(self.pool(self.relu(self.norm(x))))


class ResidualBlock(nn.Module):
    """BN, ReLU, conv3x3, BN, ReLU, conv3x3 plus a shortcut.

    Where the shape changes, the shortcut is a conv1x1 of the first ReLU's output.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, bias=False)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        first = self.relu1(self.norm1(x))
        out = self.conv2(self.relu2(self.norm2(self.conv1(first))))
        if self.shortcut is None:
            return out + x
        # Subsample before the convolution instead of by its stride: a strided conv1x1 with few
        # channels writes out of bounds in channels_last (uxlfoundation/oneDNN issue 6035).
        return out + self.shortcut(first[..., :: self.stride, :: self.stride])


def _group(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    rest = (ResidualBlock(outputs, outputs, 1) for _ in range(blocks - 1))
    return nn.Sequential(ResidualBlock(inputs, outputs, stride), *rest)
