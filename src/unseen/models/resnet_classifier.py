"""ResNet-18 or ResNet-50 with a classifier, the default for images of one's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.models.fcn32s import MEAN, STD
from unseen.models.resnet import Depth, ResNet

SMALL = 32  # pixels: images up to this side are not pooled at the start


class ResNetClassifier(ResNet):
    """(N, 3, H, W) in 0..1 -> (N, classes); torchvision's parameter names, ImageNet's statistics.

    Args:
        classes: Number of outputs.
        depth: 18 or 50.
        width: Factor on the number of channels.
        small: Leave out the max pooling after the first convolution, for images of 32 pixels.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, classes: int, *, depth: Depth = 18, width: float = 1.0, small: bool = False
    ) -> None:
        if isinstance(width, bool) or not 0 < width <= 4:
            raise UnseenError(f"width must be a number above 0 and at most 4, not {width!r}")
        super().__init__(depth, width)
        if small:
            self.maxpool = nn.Identity()  # type: ignore[assignment]
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(self.channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(super().forward((x - self.mean) / self.std)))
