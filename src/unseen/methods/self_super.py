"""Rotation prediction as an auxiliary task (Hendrycks et al., NeurIPS 2019; Gidaris et al., 2018).

    min over theta, psi of  L(theta; x, y) + rotation_weight mean_r CE(psi(z(rotate(x, r))), r)

z is the embedding, psi a linear head on it, r one of 0, 90, 180 and 270 degrees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_number
from unseen.errors import UnseenError
from unseen.functional.losses import cross_entropy
from unseen.methods.erm import ERM
from unseen.nn.heads import EmbeddingHead, embed
from unseen.nn.inputs import Inputs, images
from unseen.nn.probe import Probe


class SelfSuper(ERM):
    """Predict the rotation of an image in addition to its class."""

    name = "self_super"
    summary = "predicts the rotation of each image in addition to its class"
    paper = (
        "Hendrycks et al., Using Self-Supervised Learning Can Improve Model Robustness and "
        "Uncertainty, NeurIPS 2019"
    )

    needs_embedding = True

    def __init__(
        self,
        model: nn.Module,
        *,
        rotation_weight: float = 0.5,  # the authors' release
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.rotation_weight = check_number("rotation_weight", rotation_weight, 0)
        if self.is_built:
            self._build_head()

    def _build_head(self) -> None:
        self.head = EmbeddingHead(self.model, self.embedding, 4, self.name)
        self.model_optimizer = self._optimizer(self.trainable().values(), self.head.parameters())

    def _name_found_layers(self, seen: Probe) -> None:
        self._build_head()
        self.head.to(self.device)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        x = images(batch.x, self.name)
        source = self.source_loss(batch)
        rotated = self._ready(Inputs.like(batch.x, [rotate(x)]))
        rotation = cross_entropy(
            self.head(embed(self.model, self.head.layer, rotated)),
            rotation_labels(len(x)).to(x.device),
        )
        return {
            "loss": source + self.rotation_weight * rotation,
            "source_loss": source,
            "rotation_loss": rotation,
        }


def rotate(x: Tensor) -> Tensor:
    """Rotate images (N, C, H, H) by 0, 90, 180 and 270 degrees counterclockwise: (4 N, C, H, H)."""
    if x.shape[2] != x.shape[3]:
        raise UnseenError(
            f"self_super rotates images by 90 degrees: expected square images, "
            f"got {x.shape[2]} x {x.shape[3]}"
        )
    return torch.cat([x.rot90(turn, (2, 3)) for turn in range(4)])


def rotation_labels(n: int) -> Tensor:
    """Return the labels of `rotate` for n images, (4 N,)."""
    return torch.arange(4).repeat_interleave(n)
