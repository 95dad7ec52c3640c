"""FCN-32s on a ResNet, the backbone for semantic segmentation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.models.resnet import Depth, ResNet, load_pretrained

# ImageNet's channel statistics, which pretrained weights expect.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class FCN32s(nn.Module):
    """ResNet, conv3x3(512), conv1x1(classes), upsampling: (N, 3, H, W) -> (N, classes, H, W).

    Args:
        classes: Number of outputs per pixel.
        depth: 18 or 50.
        width: Factor on the number of channels.
        pretrained: File with ImageNet weights of the ResNet, torchvision's names; empty for none.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, classes: int, *, depth: Depth = 50, width: float = 1.0, pretrained: str = ""
    ) -> None:
        super().__init__()
        if isinstance(width, bool) or not 0 < width <= 4:
            raise UnseenError(f"width must be a number above 0 and at most 4, not {width!r}")
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)
        self.body = ResNet(depth, width)
        if pretrained:
            load_pretrained(self.body, pretrained)
        hidden = max(1, round(512 * width))
        self.hidden = nn.Conv2d(self.body.channels, hidden, 3, padding=1)
        self.relu = nn.ReLU()
        self.classify = nn.Conv2d(hidden, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[2:]
        x = self.body((x - self.mean) / self.std)  # (N, 2048 or 512, H / 32, W / 32)
        x = self.classify(self.relu(self.hidden(x)))
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)
