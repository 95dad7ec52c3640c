"""SE, self-ensembling: of a changed image the model learns to say what a slowly following teacher says of another change."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import UNLABELLED, Adaptation, descend
from unseen.api import Batch, images
from unseen.checks import check_fraction, check_number

AFFINE, SHIFT, NOISE = (
    0.1,
    2.0,
    0.1,
)  # std of the matrix's entries, pixels of translation, std of noise: docs/adaptation/se.md


def follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """teacher <- momentum teacher + (1 - momentum) student, for every number of both."""
    with torch.no_grad():
        for slow, fast in zip(
            teacher.state_dict().values(), student.state_dict().values(), strict=True
        ):
            if slow.is_floating_point():
                slow.lerp_(fast, 1 - momentum)
            else:
                slow.copy_(fast)


def consistency(student: Tensor, teacher: Tensor, confidence: float) -> Tensor:
    """Squared difference of class probabilities where the teacher's highest exceeds the threshold; mean over all samples."""
    p, q = student.softmax(1), teacher.softmax(1)
    sure = (q.amax(1) > confidence).to(p.dtype)
    return ((p - q).square().mean(1) * sure).mean()


def class_balance(logits: Tensor) -> Tensor:
    """Binary cross-entropy of the batch's mean probability of each class with 1 / classes: no class may swallow the others."""
    p = logits.softmax(1).mean(0).clamp(1e-6, 1 - 1e-6)
    even = 1 / len(p)
    return -(even * p.log() + (1 - even) * (1 - p).log()).mean()


def changed(x: Tensor) -> Tensor:
    """Each image under a random affine map near the identity, shifted by up to two pixels, with Gaussian noise."""
    n, height, width = len(x), x.shape[2], x.shape[3]
    matrix = torch.eye(2) + AFFINE * torch.randn(n, 2, 2)
    shift = (
        (2 * torch.rand(n, 2, 1) - 1) * SHIFT * torch.tensor([[2 / width], [2 / height]])
    )  # the grid runs from -1 to 1
    grid = F.affine_grid(
        torch.cat([matrix, shift], dim=2).to(x), list(x.shape), align_corners=False
    )
    moved = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    return moved + NOISE * torch.randn(x.shape).to(x)


class SelfEnsembling(Adaptation):
    """The source's labels, the teacher's opinion of the target where it is sure, and the teacher follows."""

    name = "se"
    summary = "a mean teacher's confident opinion of changed target images; needs images"
    paper = "French, Mackiewicz, Fisher, Self-ensembling for visual domain adaptation, ICLR 2018"
    needs = UNLABELLED

    def __init__(
        self,
        model: nn.Module,
        *,
        momentum: float = 0.99,
        confidence: float = 0.968,
        consistency_weight: float = 3.0,
        balance_weight: float = 0.005,
        steps: int = 1000,
        **common: Any,
    ) -> None:
        super().__init__(model, steps=steps, **common)
        self.momentum = check_fraction("momentum", momentum, zero=True)
        self.confidence = check_fraction("confidence", confidence, zero=True)
        self.consistency_weight = check_number("consistency_weight", consistency_weight, 0)
        self.balance_weight = check_number("balance_weight", balance_weight, 0)
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = self._adam(self.model)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        ours, theirs = images(source.x, self.name), images(target.x, self.name)
        n = len(ours)
        logits = self.model(torch.cat([changed(ours), changed(theirs)]))
        classes = self._loss(logits[:n], source.y)
        with torch.no_grad():
            opinion = self.teacher(changed(theirs))
        consistent = consistency(logits[n:], opinion, self.confidence)
        balance = class_balance(logits[n:])
        loss = classes + self.consistency_weight * consistent + self.balance_weight * balance
        descend(self.optimizer, loss)
        follow(self.teacher, self.model, self.momentum)
        sure = (opinion.softmax(1).amax(1) > self.confidence).float().mean()
        return {"loss": loss.detach(), "consistency": consistent.detach(), "sure": sure}

    def adapted(self) -> nn.Module:
        self.model.load_state_dict(self.teacher.state_dict())
        return self.model
