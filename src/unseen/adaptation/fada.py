"""FADA: adversarial adaptation with a discriminator of four groups of pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import FEW_LABELS, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.nn.inputs import Inputs

SAME_SOURCE, SAME_ACROSS, OTHER_SOURCE, OTHER_ACROSS = range(4)  # the paper's groups G1 to G4


class Pairs(NamedTuple):
    """Indices of paired samples into the concatenation of source and target, and their groups."""

    first: Tensor
    second: Tensor
    group: Tensor


def draw_pairs(ys: Tensor, yt: Tensor, size: int) -> Pairs:
    """Draw up to `size` pairs of each group: same or different class, within source or across."""
    n = len(ys)
    # Upper triangle: no sample with itself, no pair twice.
    within = torch.ones(n, n, dtype=torch.bool, device=ys.device).triu(1)
    same_source, same_across = ys[:, None] == ys[None], ys[:, None] == yt[None]
    masks = (same_source & within, same_across, ~same_source & within, ~same_across)
    groups = []
    for group, mask in enumerate(masks):
        pairs = torch.nonzero(mask)
        pairs = pairs[torch.randperm(len(pairs))[:size].to(pairs.device)]
        shift = n if group in (SAME_ACROSS, OTHER_ACROSS) else 0
        groups.append(Pairs(pairs[:, 0], pairs[:, 1] + shift, torch.full_like(pairs[:, 0], group)))
    return Pairs(*(torch.cat(parts) for parts in zip(*groups, strict=True)))


def confusion_target(group: Tensor) -> Tensor:
    """Map pairs across domains to the group within the source: G2 -> G1, G4 -> G3."""
    return group.masked_fill(group == SAME_ACROSS, SAME_SOURCE).masked_fill(
        group == OTHER_ACROSS, OTHER_SOURCE
    )


def confusion_loss(scores: Tensor, group: Tensor) -> Tensor:
    """Compute the cross-entropy of pairs across domains with their confusion targets."""
    across = (group == SAME_ACROSS) | (group == OTHER_ACROSS)
    if not across.any():
        return scores.sum() * 0
    return F.cross_entropy(scores[across], confusion_target(group[across]))


class FADA(Adaptation):
    """Train the discriminator alone first, then alternate with the model."""

    name = "fada"
    summary = "the model learns to confuse a discriminator of domain-class pairs"
    paper = (
        "Motiian, Jones, Iranmanesh, Doretto, Few-shot adversarial domain adaptation, NeurIPS 2017"
    )
    needs = FEW_LABELS

    def __init__(
        self,
        model: nn.Module,
        *,
        confusion_weight: float = 0.2,
        discriminator_steps: int = 100,
        discriminator_lr: float = 1e-3,
        pairs: int = 32,
        steps: int = 300,
        **common: Any,
    ) -> None:
        super().__init__(model, steps=steps, **common)
        self.confusion_weight = check_number("confusion_weight", confusion_weight, 0)
        self.discriminator_steps = check_int("discriminator_steps", discriminator_steps, 0)
        self.discriminator_lr = check_positive("discriminator_lr", discriminator_lr)
        self.pairs = check_int("pairs", pairs, 1)
        self.discriminator = nn.Sequential(
            nn.Linear(2 * self._width(), 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 4),
        ).to(next(self.model.parameters()).device)
        if self.steps <= discriminator_steps:
            raise UnseenError(
                f"fada trains its discriminator alone for discriminator_steps="
                f"{discriminator_steps} first: steps must be greater, not {steps}"
            )
        self.optimizer = self._adam(self.model)
        self.discriminator_optimizer = self._adam(self.discriminator, lr=discriminator_lr)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        pairs = draw_pairs(source.y, target.y, self.pairs)
        train_model = done >= self.discriminator_steps
        with torch.set_grad_enabled(train_model):
            z, logits = self._embed(
                Inputs.like(source.x, map(torch.cat, zip(source.x, target.x, strict=True)))
            )
        logs = self.model_step(z, logits, source.y, target.y, pairs) if train_model else {}
        discriminator_loss = self.discriminator_step(z.detach(), pairs)
        return {"loss": discriminator_loss, **logs, "discriminator_loss": discriminator_loss}

    def discriminator_step(self, z: Tensor, pairs: Pairs) -> Tensor:
        """Update the discriminator to classify the group of each pair."""
        loss = F.cross_entropy(self.scores(z, pairs), pairs.group)
        descend(self.discriminator_optimizer, loss)
        return loss.detach()

    def model_step(
        self, z: Tensor, logits: Tensor, ys: Tensor, yt: Tensor, pairs: Pairs
    ) -> dict[str, Tensor]:
        """Update the model to classify both domains and to confuse the discriminator."""
        class_loss = self._loss(logits[: len(ys)], ys) + self._loss(logits[len(ys) :], yt)
        confusion = confusion_loss(self.scores(z, pairs), pairs.group)
        loss = class_loss + self.confusion_weight * confusion
        descend(self.optimizer, loss)
        return {"loss": loss.detach(), "confusion": confusion.detach()}

    def scores(self, z: Tensor, pairs: Pairs) -> Tensor:
        """Return the discriminator's logits for each pair, (N, 4)."""
        return self.discriminator(torch.cat([z[pairs.first], z[pairs.second]], dim=1))
