"""Self-ensembling: consistency with a mean teacher under random augmentation."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import UNLABELLED, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_fraction, check_number
from unseen.nn.inputs import images

AFFINE, SHIFT, NOISE = 0.1, 2.0, 0.1  # std of matrix entries, pixels of shift, std of noise


def update_teacher(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Set teacher <- momentum teacher + (1 - momentum) student, parameters and buffers."""
    with torch.no_grad():
        for slow, fast in zip(
            teacher.state_dict().values(), student.state_dict().values(), strict=True
        ):
            if slow.is_floating_point():
                slow.lerp_(fast, 1 - momentum)
            else:
                slow.copy_(fast)


def consistency_loss(student: Tensor, teacher: Tensor, confidence: float) -> Tensor:
    """Compute the squared difference of probabilities where the teacher is confident.

    The mean is over all samples; those below the confidence threshold count as 0.
    """
    p, q = student.softmax(1), teacher.softmax(1)
    confident = (q.amax(1) > confidence).to(p.dtype)
    return ((p - q).square().mean(1) * confident).mean()


def class_balance(logits: Tensor) -> Tensor:
    """Compute the binary cross-entropy of the mean class probabilities with 1 / classes."""
    p = logits.softmax(1).mean(0).clamp(1e-6, 1 - 1e-6)
    uniform = 1 / len(p)
    return -(uniform * p.log() + (1 - uniform) * (1 - p).log()).mean()


def augment(x: Tensor) -> Tensor:
    """Apply a random affine map near the identity, a shift of up to 2 pixels and noise."""
    n, height, width = len(x), x.shape[2], x.shape[3]
    matrix = torch.eye(2) + AFFINE * torch.randn(n, 2, 2)
    # In grid coordinates, -1 to 1.
    shift = (2 * torch.rand(n, 2, 1) - 1) * SHIFT * torch.tensor([[2 / width], [2 / height]])
    grid = F.affine_grid(
        torch.cat([matrix, shift], dim=2).to(x), list(x.shape), align_corners=False
    )
    out = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    return out + NOISE * torch.randn(x.shape).to(x)


class SelfEnsembling(Adaptation):
    """Train on source labels and on a mean teacher's confident predictions for the target."""

    name = "se"
    summary = "consistency with a mean teacher's confident predictions; needs images"
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
        xs, xt = images(source.x, self.name), images(target.x, self.name)
        n = len(xs)
        logits = self._logits(torch.cat([augment(xs), augment(xt)]))
        class_loss = self._loss(logits[:n], source.y)
        with torch.no_grad():
            teacher_logits = self._logits(augment(xt), self.teacher)
        consistency = consistency_loss(logits[n:], teacher_logits, self.confidence)
        balance = class_balance(logits[n:])
        loss = class_loss + self.consistency_weight * consistency + self.balance_weight * balance
        descend(self.optimizer, loss)
        update_teacher(self.teacher, self.model, self.momentum)
        confident = (teacher_logits.softmax(1).amax(1) > self.confidence).float().mean()
        return {
            "loss": loss.detach(),
            "consistency": consistency.detach(),
            "confident": confident,
        }

    def adapted(self) -> nn.Module:
        self.model.load_state_dict(self.teacher.state_dict())
        return self.model
