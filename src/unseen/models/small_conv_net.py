"""A small convolutional network for spectrograms and other images of any number of channels."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


class SmallConvNet(nn.Module):
    """Four 3x3 convolutions, average pooling, two linear layers: (N, C, H, W) -> (N, classes)."""

    def __init__(self, channels: int, classes: int, width: int = 32) -> None:
        super().__init__()
        sizes = [channels, width, 2 * width, 4 * width, 4 * width]
        self.conv1, self.conv2, self.conv3, self.conv4 = (
            nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(sizes)
        )
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.BatchNorm2d(b) for b in sizes[1:])
        self.relu = nn.ReLU()
        self.halve = nn.MaxPool2d(2, ceil_mode=True)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc1 = nn.Linear(sizes[-1], 2 * width)
        self.fc2 = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.halve(self.relu(self.norm1(self.conv1(x))))
        x = self.halve(self.relu(self.norm2(self.conv2(x))))
        x = self.halve(self.relu(self.norm3(self.conv3(x))))
        x = self.pool(self.relu(self.norm4(self.conv4(x))))
        return self.fc2(self.relu(self.fc1(x)))
