"""DigitsNet, the backbone for 32x32 digits."""

from __future__ import annotations

from torch import Tensor, nn


class DigitsNet(nn.Module):
    """conv5x5(64)-pool-conv5x5(128)-pool-fc1024-fc1024-classes, unpadded; input (N, 3, 32, 32)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        # ReLU commutes with max pooling; after it, ReLU costs a quarter.
        self.conv1 = nn.Conv2d(3, 64, 5)
        self.pool1 = nn.MaxPool2d(2)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(64, 128, 5)
        self.pool2 = nn.MaxPool2d(2)
        self.relu2 = nn.ReLU()
        self.fc1 = nn.Linear(128 * 5 * 5, 1024)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(1024, 1024)
        self.relu4 = nn.ReLU()
        self.fc3 = nn.Linear(1024, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.pool1(self.conv1(x)))  # (N, 64, 14, 14)
        x = self.relu2(self.pool2(self.conv2(x)))  # (N, 128, 5, 5)
        x = self.relu3(self.fc1(x.flatten(1)))
        x = self.relu4(self.fc2(x))
        return self.fc3(x)
