"""CCSA: contrastive alignment of source and target classes in the embedding."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import FEW_LABELS, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_fraction, check_positive
from unseen.nn.inputs import Inputs


def alignment_and_separation(
    source: Tensor, ys: Tensor, target: Tensor, yt: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Compute the two pair losses; each is 0 if there are no such pairs.

    Alignment is the mean of d^2 / 2 over pairs of the same class, separation the mean of
    max(0, margin - d)^2 / 2 over pairs of different classes.
    """
    distance = pairwise_distance(source, target)
    same = ys[:, None] == yt[None, :]
    alignment = distance.square() / 2
    separation = (margin - distance).clamp(min=0).square() / 2
    return _masked_mean(alignment, same), _masked_mean(separation, ~same)


def pairwise_distance(a: Tensor, b: Tensor) -> Tensor:
    """Compute Euclidean distances (N, D), (M, D) -> (N, M), with zero gradient at distance 0."""
    return ((a[:, None] - b[None]).square().sum(-1) + 1e-12).sqrt()


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


class CCSA(Adaptation):
    """Classify both domains and align or separate pairs of source and target samples."""

    name = "ccsa"
    summary = "aligns pairs of the same class across domains, separates the others"
    paper = (
        "Motiian, Piccirilli, Adjeroh, Doretto, Unified deep supervised domain adaptation and "
        "generalization, ICCV 2017"
    )
    needs = FEW_LABELS

    def __init__(
        self,
        model: nn.Module,
        *,
        pair_weight: float = 0.25,
        margin: float = 1.0,
        steps: int = 200,
        **common: Any,
    ) -> None:
        super().__init__(model, steps=steps, **common)
        self.pair_weight = check_fraction("pair_weight", pair_weight, zero=True, one=True)
        self.margin = check_positive("margin", margin)
        self._layer()
        self.optimizer = self._adam(self.model)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        n = len(source.y)
        z, logits = self._embed(
            Inputs.like(source.x, map(torch.cat, zip(source.x, target.x, strict=True)))
        )
        # On the unit sphere distances lie in 0..2, so the margin means the same for every model.
        z = F.normalize(z)
        alignment, separation = alignment_and_separation(
            z[:n], source.y, z[n:], target.y, self.margin
        )
        class_loss = self._loss(logits[:n], source.y) + self._loss(logits[n:], target.y)
        loss = (1 - self.pair_weight) * class_loss + self.pair_weight * (alignment + separation)
        descend(self.optimizer, loss)
        return {
            "loss": loss.detach(),
            "alignment": alignment.detach(),
            "separation": separation.detach(),
        }
