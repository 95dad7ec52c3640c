"""Rotation prediction beside the task (Hendrycks et al., NeurIPS 2019, with the pretext task of Gidaris et al., ICLR 2018).

    min over theta, psi of  L(theta; x, y) + rotation_weight mean over r of CE(psi(z(x turned by r)), r)

z is the embedding, psi a linear head on it, r one of 0, 90, 180 and 270 degrees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, cross_entropy, images
from unseen.checks import check_number
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.heads import EmbeddingHead, embed


class SelfSuper(ERM):
    """The model also tells how far an image was turned, which takes shape rather than texture."""

    name = "self_super"
    summary = "predicts each image's rotation beside its class"
    paper = "Hendrycks et al., Using Self-Supervised Learning Can Improve Model Robustness and Uncertainty, NeurIPS 2019"

    def __init__(
        self,
        model: nn.Module,
        *,
        rotation_weight: float = 0.5,  # the authors' release
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.rotation_weight = check_number("rotation_weight", rotation_weight, 0)
        self.head = EmbeddingHead(model, self.embedding, 4, self.name)
        self.model_optimizer = self._optimizer(self.trainable().values(), self.head.parameters())

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        x = images(batch.x, self.name)
        source = self.source_loss(batch)
        turned = self._ready(rotations(x))
        rotation = cross_entropy(
            self.head(embed(self.model, self.head.layer, turned)), turns(len(x)).to(x.device)
        )
        return {
            "loss": source + self.rotation_weight * rotation,
            "source_loss": source,
            "rotation_loss": rotation,
        }


def rotations(x: Tensor) -> Tensor:
    """Images (N, C, H, H) turned by 0, 90, 180 and 270 degrees against the clock: (4 N, C, H, H), turn by turn."""
    if x.shape[2] != x.shape[3]:
        raise UnseenError(
            f"self_super turns images by 90 degrees, so they must be square; these are {x.shape[2]} x {x.shape[3]}"
        )
    return torch.cat([x.rot90(turn, (2, 3)) for turn in range(4)])


def turns(n: int) -> Tensor:
    """What is to be predicted for `rotations` of n images."""
    return torch.arange(4).repeat_interleave(n)
