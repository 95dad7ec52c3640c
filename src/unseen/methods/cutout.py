"""Cutout: plain training on images with a square blanked, L(theta; x * mask, y)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from unseen.api import Batch, images
from unseen.augmentations.cut_out import cutout
from unseen.checks import check_positive
from unseen.methods.erm import ERM


class Cutout(ERM):
    """Plain training with a square of every image blanked."""

    name = "cutout"
    summary = "plain training with a square of every image blanked"
    paper = "DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout, arXiv 2017"

    def __init__(self, model: nn.Module, *, side: float = 0.5, **common: Any) -> None:
        super().__init__(model, **common)
        self.side = check_positive("side", side)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return super().losses(Batch((cutout(images(batch.x, self.name), self.side),), batch.y))
