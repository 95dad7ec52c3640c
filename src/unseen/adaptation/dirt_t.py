"""VADA, then DIRT-T: decision boundaries that avoid dense regions of the target."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import UNLABELLED, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_fraction, check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.functional.scores import entropy
from unseen.nn.inputs import Inputs

Predict = Callable[[Tensor], Tensor]
PROBE = 1e-2  # finite-difference step; VAT's 1e-6 is lost to rounding in single precision


def conditional_entropy(logits: Tensor) -> Tensor:
    """Compute the mean entropy of the class probabilities."""
    return entropy(logits).mean()


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Compute the mean KL(p || q) of two batches of logits."""
    log_p, log_q = p.log_softmax(1), q.log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


def unit_length(x: Tensor) -> Tensor:
    """Scale each sample to Euclidean norm 1; zeros stay zeros."""
    shape = (-1, *[1] * (x.dim() - 1))
    # Scale by the maximum first: the squares of a confident model's gradients underflow.
    x = x / x.flatten(1).abs().amax(1).clamp(min=1e-37).view(shape)
    return x / x.flatten(1).norm(dim=1).clamp(min=0.5).view(shape)


def worst_direction(model: Predict, x: Tensor, logits: Tensor) -> Tensor:
    """Return for each sample the unit direction of fastest change, by one power iteration."""
    direction = unit_length(torch.randn(x.shape).to(x)).requires_grad_()
    change = divergence(logits.detach(), model(x.detach() + PROBE * direction))
    (gradient,) = torch.autograd.grad(change, direction)
    return unit_length(gradient)


def virtual_adversarial_loss(model: Predict, x: Tensor, logits: Tensor, radius: float) -> Tensor:
    """Compute the KL between predictions at x and at the worst point at distance `radius`."""
    return divergence(logits.detach(), model(x + radius * worst_direction(model, x, logits)))


class DirtT(Adaptation):
    """VADA for the first steps, then DIRT-T with an earlier copy of the model as teacher."""

    name = "dirt_t"
    summary = (
        "VADA (domain-adversarial with the cluster assumption), then DIRT-T on the target alone"
    )
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
        # Faster, so that the discriminator keeps up with the model.
        self.discriminator_optimizer = self._adam(self.discriminator, lr=10 * self.lr)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        for x in (source.x, target.x):
            if len(x) != 1 or not x[0].is_floating_point():
                given = ", ".join(str(t.dtype).removeprefix("torch.") for t in x)
                raise UnseenError(
                    f"dirt_t perturbs its input: expected one float input, got {given}"
                )
        refinement_step = done - round(self.vada_share * self.steps)
        if refinement_step < 0:
            return self.vada_step(source, target)
        if refinement_step % self.refresh == 0:
            self.teacher.load_state_dict(self.model.state_dict())
        return self.dirt_t_step(target.x[0])

    def vada_step(self, source: Batch, target: Batch) -> dict[str, Tensor]:
        """Take one step of VADA on both domains."""
        xs, xt = source.x[0], target.x[0]
        n = len(xs)
        z, logits = self._embed(Inputs.like(source.x, [torch.cat([xs, xt])]))
        is_source = torch.zeros(len(z), 1, device=z.device)
        is_source[:n] = 1
        discriminator_loss = F.binary_cross_entropy_with_logits(
            self.discriminator(z.detach()), is_source
        )
        descend(self.discriminator_optimizer, discriminator_loss)
        confusion = F.binary_cross_entropy_with_logits(self.discriminator(z), 1 - is_source)
        smoothness = virtual_adversarial_loss(self._logits, xt, logits[n:], self.radius)
        entropy_loss = conditional_entropy(logits[n:])
        loss = (
            self._loss(logits[:n], source.y)
            + self.domain_weight * confusion
            + self.target_weight * (smoothness + entropy_loss)
        )
        if self.source_smooth_weight:
            loss = loss + self.source_smooth_weight * virtual_adversarial_loss(
                self._logits, xs, logits[:n], self.radius
            )
        descend(self.optimizer, loss)
        return {
            "loss": loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "entropy": entropy_loss.detach(),
        }

    def dirt_t_step(self, x: Tensor) -> dict[str, Tensor]:
        """Take one step of DIRT-T on the target alone."""
        logits = self._logits(x)
        with torch.no_grad():
            teacher_logits = self._logits(x, self.teacher)
        smoothness = virtual_adversarial_loss(self._logits, x, logits, self.radius)
        entropy_loss = conditional_entropy(logits)
        teacher_kl = divergence(teacher_logits, logits)
        loss = self.target_weight * (smoothness + entropy_loss) + self.teacher_weight * teacher_kl
        descend(self.optimizer, loss)
        return {
            "loss": loss.detach(),
            "teacher_kl": teacher_kl.detach(),
            "entropy": entropy_loss.detach(),
        }
