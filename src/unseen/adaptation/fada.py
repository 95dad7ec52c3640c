"""FADA: a discriminator tells four kinds of pairs apart; the model learns to pass its target samples off as source samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import FEW_LABELS, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError

SAME_SOURCE, SAME_ACROSS, OTHER_SOURCE, OTHER_ACROSS = range(4)  # the paper's groups G1 to G4


class Pairs(NamedTuple):
    """Indices of paired samples, into source and target samples one after the other, and each pair's group."""

    first: Tensor
    second: Tensor
    group: Tensor


def pairs_of(ys: Tensor, yt: Tensor, size: int) -> Pairs:
    """Up to `size` random pairs of each group: one class or two, both of the source or one of each domain."""
    n = len(ys)
    of_source = torch.ones(n, n, dtype=torch.bool, device=ys.device).triu(
        1
    )  # no sample with itself, no pair twice
    same_source, same_across = ys[:, None] == ys[None], ys[:, None] == yt[None]
    kinds = (same_source & of_source, same_across, ~same_source & of_source, ~same_across)
    found = []
    for group, wanted in enumerate(kinds):
        pairs = torch.nonzero(wanted)
        pairs = pairs[torch.randperm(len(pairs))[:size].to(pairs.device)]
        shift = n if group in (SAME_ACROSS, OTHER_ACROSS) else 0
        found.append(Pairs(pairs[:, 0], pairs[:, 1] + shift, torch.full_like(pairs[:, 0], group)))
    return Pairs(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def passed_off(group: Tensor) -> Tensor:
    """What the model wants each pair taken for: pairs across the domains for pairs of the source, G2 -> G1 and G4 -> G3."""
    return group.masked_fill(group == SAME_ACROSS, SAME_SOURCE).masked_fill(
        group == OTHER_ACROSS, OTHER_SOURCE
    )


def confusion_loss(scores: Tensor, group: Tensor) -> Tensor:
    """Cross-entropy of the pairs across the domains with the groups they should be taken for."""
    across = (group == SAME_ACROSS) | (group == OTHER_ACROSS)
    if not across.any():
        return scores.sum() * 0
    return F.cross_entropy(scores[across], passed_off(group[across]))


class FADA(Adaptation):
    """First the discriminator learns the four groups, then model and discriminator take turns."""

    name = "fada"
    summary = "a discriminator of domain and class pairs, which the model learns to confuse"
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
            told = f"steps={steps} is no more than that, so the model would stay as it is"
            raise UnseenError(
                f"fada trains its discriminator alone for discriminator_steps={discriminator_steps} first: {told}"
            )
        self.optimizer = self._adam(self.model)
        self.discriminator_optimizer = self._adam(self.discriminator, lr=discriminator_lr)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        pairs = pairs_of(source.y, target.y, self.pairs)
        confusing = done >= self.discriminator_steps
        with torch.set_grad_enabled(confusing):
            z, logits = self._embed(
                tuple(torch.cat(both) for both in zip(source.x, target.x, strict=True))
            )
        logs = self.confuse(z, logits, source.y, target.y, pairs) if confusing else {}
        told_apart = self.tell_apart(z.detach(), pairs)
        return {"loss": told_apart, **logs, "told_apart": told_apart}

    def tell_apart(self, z: Tensor, pairs: Pairs) -> Tensor:
        """The discriminator's turn: which group is a pair of?"""
        loss = F.cross_entropy(self.scores(z, pairs), pairs.group)
        descend(self.discriminator_optimizer, loss)
        return loss.detach()

    def confuse(
        self, z: Tensor, logits: Tensor, ys: Tensor, yt: Tensor, pairs: Pairs
    ) -> dict[str, Tensor]:
        """The model's turn: the classes of both domains, and target samples that pass for source samples."""
        classes = self._loss(logits[: len(ys)], ys) + self._loss(logits[len(ys) :], yt)
        confusion = confusion_loss(self.scores(z, pairs), pairs.group)
        loss = classes + self.confusion_weight * confusion
        descend(self.optimizer, loss)
        return {"loss": loss.detach(), "confusion": confusion.detach()}

    def scores(self, z: Tensor, pairs: Pairs) -> Tensor:
        """The discriminator's logits of the four groups for each pair."""
        return self.discriminator(torch.cat([z[pairs.first], z[pairs.second]], dim=1))
