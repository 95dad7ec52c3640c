"""LeNet, the backbone for spectrograms of spoken words."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """conv5x5(6)-pool-conv5x5(16)-pool-fc120-fc84-classes, unpadded; input (N, 1, 32, 32)."""

    def __init__(self, classes: int = 30) -> None:
        super().__init__()
        # ReLU commutes with max pooling; after it, ReLU costs a quarter.
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.pool1 = nn.MaxPool2d(2)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.pool2 = nn.MaxPool2d(2)
        self.relu2 = nn.ReLU()
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(120, 84)
        self.relu4 = nn.ReLU()
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.pool1(self.conv1(x)))  # (N, 6, 14, 14)
        x = self.relu2(self.pool2(self.conv2(x)))  # (N, 16, 5, 5)
        x = self.relu3(self.fc1(x.flatten(1)))
        x = self.relu4(self.fc2(x))
        return self.fc3(x)
