"""Cutout: ERM on images with a random square set to zero, L(theta; x * mask, y)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from unseen.api import Batch
from unseen.augmentations.cut_out import cutout
from unseen.checks import check_positive
from unseen.methods.erm import ERM
from unseen.nn.inputs import Inputs, images
from unseen.nn.ranks import on_whole_batch


class Cutout(ERM):
    """ERM on images with a random square set to zero."""

    name = "cutout"
    summary = "ERM on images with a random square set to zero"
    paper = (
        "DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout, "
        "arXiv 2017"
    )

    def __init__(self, model: nn.Module, *, side: float = 0.5, **common: Any) -> None:
        super().__init__(model, **common)
        self.side = check_positive("side", side)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        x = on_whole_batch(lambda t: cutout(t, self.side), images(batch.x, self.name))
        return super().losses(Batch(Inputs.like(batch.x, [x]), batch.y))
