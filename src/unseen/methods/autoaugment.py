"""AutoAugment: ERM on images changed by a learned policy, L(theta; T(x), y)."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from unseen.api import Batch
from unseen.augmentations.auto_augment import autoaugment
from unseen.checks import check_choice
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.inputs import Inputs, images
from unseen.nn.ranks import on_whole_batch

Policy = Literal["cifar10", "imagenet", "svhn"]


class AutoAugment(ERM):
    """ERM with a learned augmentation policy."""

    name = "autoaugment"
    summary = "ERM with a learned augmentation policy"
    paper = "Cubuk et al., AutoAugment: Learning Augmentation Strategies from Data, CVPR 2019"

    def __init__(self, model: nn.Module, *, policy: Policy = "cifar10", **common: Any) -> None:
        super().__init__(model, **common)
        self.policy: Policy = check_choice("policy", policy, ("cifar10", "imagenet", "svhn"))

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        x = images(batch.x, self.name)
        if batch.y.dim() > 1:
            raise UnseenError(
                f"{self.name} rotates and shears images but not label maps; "
                f"y has shape {tuple(batch.y.shape)}, expected (N,)"
            )
        changed = on_whole_batch(lambda t: autoaugment(t, self.policy), x)
        return super().losses(Batch(Inputs.like(batch.x, [changed]), batch.y))
