"""VADA, then DIRT-T: class boundaries that avoid the target's dense regions, then refined on the target alone."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import UNLABELLED, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_fraction, check_int, check_number, check_positive
from unseen.detection.source_statistics import entropy
from unseen.errors import UnseenError

PROBE = 1e-2  # length of the step that finds the direction; at VAT's 1e-6 the differences drown in single precision


def conditional_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the class probabilities: low where the model is decided."""
    return entropy(logits).mean()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Mean KL(p || q) of two batches of logits."""
    log_p, log_q = p.log_softmax(1), q.log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def unit_length(x: Tensor) -> Tensor:
    """Each sample scaled to Euclidean length 1; where all is 0 it stays 0."""
    ones = (-1, *[1] * (x.dim() - 1))
    x = x / x.flatten(1).abs().amax(1).clamp(min=1e-37).view(
        ones
    )  # a decided model's gradients square to 0 in single precision
    return x / x.flatten(1).norm(dim=1).clamp(min=0.5).view(ones)


def worst_direction(model: nn.Module, x: Tensor, logits: Tensor) -> Tensor:
    """A unit direction for each sample in which the prediction changes fastest: one power iteration from a random one."""
    direction = unit_length(torch.randn(x.shape).to(x)).requires_grad_()
    moved = divergence(logits.detach(), model(x.detach() + PROBE * direction))
    (gradient,) = torch.autograd.grad(moved, direction)
    return unit_length(gradient)


def virtual_adversarial_loss(model: nn.Module, x: Tensor, logits: Tensor, radius: float) -> Tensor:
    """KL between the prediction and that of the worst neighbour at that distance."""
    return divergence(logits.detach(), model(x + radius * worst_direction(model, x, logits)))


class DirtT(Adaptation):
    """VADA for the first share of the steps, then refinement that a teacher, the model some steps ago, holds back."""

    name = "dirt_t"
    summary = "VADA (domain-adversarial, decided and smooth on the target), then DIRT-T's refinement without the source"
    paper = "Shu, Bui, Narui, Ermon, A DIRT-T approach to unsupervised domain adaptation, ICLR 2018"
    needs = UNLABELLED

    def __init__(
        self,
        model: nn.Module,
        *,
        vada_share: float = 0.5,
        domain_weight: float = 0.01,
        source_smooth_weight: float = 1.0,
        target_weight: float = 0.01,
        teacher_weight: float = 0.01,
        radius: float = 1.75,
        refresh: int = 100,
        steps: int = 600,
        **common: Any,
    ) -> None:
        super().__init__(model, steps=steps, **common)
        self.vada_share = check_fraction("vada_share", vada_share, zero=True, one=True)
        self.domain_weight = check_number("domain_weight", domain_weight, 0)
        self.source_smooth_weight = check_number("source_smooth_weight", source_smooth_weight, 0)
        self.target_weight = check_number("target_weight", target_weight, 0)
        self.teacher_weight = check_number("teacher_weight", teacher_weight, 0)
        self.radius = check_positive("radius", radius)
        self.refresh = check_int("refresh", refresh, 1)
        self.discriminator = nn.Sequential(
            nn.Linear(self._width(), 100), nn.ReLU(), nn.Linear(100, 1)
        )
        self.discriminator.to(next(self.model.parameters()).device)
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = self._adam(self.model)
        self.discriminator_optimizer = self._adam(
            self.discriminator, lr=10 * self.lr
        )  # it has to keep up with the model

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        for x in (source.x, target.x):
            if len(x) != 1 or not x[0].is_floating_point():
                told = ", ".join(str(t.dtype).removeprefix("torch.") for t in x)
                raise UnseenError(
                    f"dirt_t moves inputs a little: it needs one input of floats, this model is given {told}"
                )
        refining = done - round(self.vada_share * self.steps)
        if refining < 0:
            return self.adapt_both(source, target)
        if refining % self.refresh == 0:
            self.teacher.load_state_dict(self.model.state_dict())
        return self.refine(target.x[0])

    def adapt_both(self, source: Batch, target: Batch) -> dict[str, Tensor]:
        """One step of VADA."""
        ours, theirs = source.x[0], target.x[0]
        n = len(ours)
        z, logits = self._embed((torch.cat([ours, theirs]),))
        of_source = torch.zeros(len(z), 1, device=z.device)
        of_source[:n] = 1
        told_apart = F.binary_cross_entropy_with_logits(self.discriminator(z.detach()), of_source)
        descend(self.discriminator_optimizer, told_apart)
        fooled = F.binary_cross_entropy_with_logits(self.discriminator(z), 1 - of_source)
        smooth = virtual_adversarial_loss(self.model, theirs, logits[n:], self.radius)
        doubt = conditional_entropy(logits[n:])
        loss = (
            self._loss(logits[:n], source.y)
            + self.domain_weight * fooled
            + self.target_weight * (smooth + doubt)
        )
        if self.source_smooth_weight:
            loss = loss + self.source_smooth_weight * virtual_adversarial_loss(
                self.model, ours, logits[:n], self.radius
            )
        descend(self.optimizer, loss)
        return {"loss": loss.detach(), "told_apart": told_apart.detach(), "entropy": doubt.detach()}

    def refine(self, x: Tensor) -> dict[str, Tensor]:
        """One step of DIRT-T, on the target alone."""
        logits = self.model(x)
        with torch.no_grad():
            held = self.teacher(x)
        smooth, doubt = (
            virtual_adversarial_loss(self.model, x, logits, self.radius),
            conditional_entropy(logits),
        )
        moved = divergence(held, logits)
        loss = self.target_weight * (smooth + doubt) + self.teacher_weight * moved
        descend(self.optimizer, loss)
        return {"loss": loss.detach(), "moved": moved.detach(), "entropy": doubt.detach()}
