"""FCN-32s on a ResNet, the backbone for semantic segmentation, and FCN-8s."""

from __future__ import annotations

from collections.abc import Sequence

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
        skips: Add classes read at 1/16 and 1/8 of the image's size, as FCN-8s does.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        classes: int,
        *,
        depth: Depth = 50,
        width: float = 1.0,
        pretrained: str = "",
        skips: bool = False,
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
        self.skips = nn.ModuleList()  # at 1/16 and 1/8
        if skips:
            quarter = self.body.channels // 4
            self.skips.extend(nn.Conv2d(n, classes, 1) for n in (2 * quarter, quarter))

    def forward(self, x: Tensor) -> Tensor:
        size, x = x.shape[2:], (x - self.mean) / self.std
        if not self.skips:
            features = self.body(x)  # (N, 2048 or 512, H / 32, W / 32)
            return _resize(self.classify(self.relu(self.hidden(features))), size)
        eighth, sixteenth, features = self.body.stages(x)
        scores = self.classify(self.relu(self.hidden(features)))
        for skip, finer in zip(self.skips, (sixteenth, eighth), strict=True):
            scores = _resize(scores, finer.shape[2:]) + skip(finer)
        return _resize(scores, size)


def _resize(scores: Tensor, size: Sequence[int]) -> Tensor:
    return F.interpolate(scores, size=tuple(size), mode="bilinear", align_corners=False)
