"""CCSA: same classes of source and target together in the embedding, different classes apart by a margin."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import FEW_LABELS, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_fraction, check_positive


def alignment_and_separation(
    source: Tensor, ys: Tensor, target: Tensor, yt: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Mean of d^2 / 2 over pairs of one class, and of max(0, margin - d)^2 / 2 over pairs of two; 0 where there are none."""
    distance = pairwise_distance(source, target)
    same = ys[:, None] == yt[None, :]
    together, apart = distance.square() / 2, (margin - distance).clamp(min=0).square() / 2
    return _mean_where(together, same), _mean_where(apart, ~same)


def pairwise_distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances (N, D), (M, D) -> (N, M), with a gradient of 0 where two points coincide."""
    return ((a[:, None] - b[None]).square().sum(-1) + 1e-12).sqrt()


def _mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    return (values * chosen).sum() / chosen.sum().clamp(min=1)


class CCSA(Adaptation):
    """Learn the classes of both domains while pairs of source and target samples pull and push each other."""

    name = "ccsa"
    summary = "pairs of one class together, of two classes apart, across the domains"
    paper = "Motiian, Piccirilli, Adjeroh, Doretto, Unified deep supervised domain adaptation and generalization, ICCV 2017"
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
            tuple(torch.cat(both) for both in zip(source.x, target.x, strict=True))
        )
        z = F.normalize(
            z
        )  # any model's embedding: on the unit sphere distances lie in 0..2, and a margin of 1 means something
        together, apart = alignment_and_separation(z[:n], source.y, z[n:], target.y, self.margin)
        classes = self._loss(logits[:n], source.y) + self._loss(logits[n:], target.y)
        loss = (1 - self.pair_weight) * classes + self.pair_weight * (together + apart)
        descend(self.optimizer, loss)
        return {"loss": loss.detach(), "together": together.detach(), "apart": apart.detach()}
