"""SBADA-GAN: symmetric bi-directional image translation with class consistency."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import UNLABELLED, Adaptation, descend
from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.nn.inputs import images, in_unit_range


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """Compute the least-squares loss of a discriminator: 1 for real, 0 for translated images."""
    return ((real - 1).square().mean() + fake.square().mean()) / 2


def generator_loss(fake: Tensor) -> Tensor:
    """Compute the least-squares loss of a generator: the discriminator should output 1."""
    return (fake - 1).square().mean()


class Generator(nn.Module):
    """Translate images (N, C, H, W) in 0..1 to the other style; starts near the identity."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.encode = nn.Conv2d(channels + 1, width, 4, 2, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(2)
        )
        self.decode = nn.Conv2d(width + channels, channels, 3, padding=1)
        with torch.no_grad():  # sigmoid(8 x - 4) is close to x, so copying need not be learned
            weight = self.decode.weight.clone()
            weight[:, width:] = 0
            weight[range(channels), range(width, width + channels), 1, 1] = 8
            self.decode.load_state_dict({"weight": weight, "bias": torch.full((channels,), -4.0)})

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(len(x), 1, *x.shape[2:]).to(x)
        h = F.relu(self.encode(torch.cat([x, noise], dim=1)))
        for block in self.blocks:
            h = h + block(h)
        h = F.interpolate(h, size=x.shape[2:])
        return torch.sigmoid(self.decode(torch.cat([h, x], dim=1)))


def make_discriminator(channels: int, width: int) -> nn.Sequential:
    """Build a patch discriminator, (N, C, H, W) -> (N, 1, h, w)."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 3, padding=1),
    )  # fmt: skip


class SBADA(Adaptation):
    """Two generators, two discriminators, two classifiers; the one of the target is the result."""

    name = "sbada"
    summary = "image translation in both directions, class consistency and self-labelling"
    paper = (
        "Russo, Carlucci, Tommasi, Caputo, From source to target and back: symmetric "
        "bi-directional adaptive GAN, CVPR 2018"
    )
    needs = UNLABELLED

    def __init__(
        self,
        model: nn.Module,
        *,
        width: int = 32,
        style_weight: float = 1.0,
        class_weight: float = 1.0,
        consistency_weight: float = 1.0,
        self_label_weight: float = 1.0,
        self_label_from: float = 0.5,
        redraw_lr: float = 5e-4,
        steps: int = 400,
        **common: Any,
    ) -> None:
        super().__init__(model, steps=steps, **common)
        self.width = check_int("width", width, 1)
        self.style_weight = check_number("style_weight", style_weight, 0)
        self.class_weight = check_number("class_weight", class_weight, 0)
        self.consistency_weight = check_number("consistency_weight", consistency_weight, 0)
        self.self_label_weight = check_number("self_label_weight", self_label_weight, 0)
        self.self_label_from = check_number("self_label_from", self_label_from, 0)
        self.redraw_lr = check_positive("redraw_lr", redraw_lr)
        # Classifies source style; self.model classifies target style.
        self.source_model = copy.deepcopy(self.model)

    def build(self, channels: int) -> None:
        """Create the parts that depend on the number of channels."""
        device = next(self.model.parameters()).device
        self.to_target, self.to_source = (
            Generator(channels, self.width).to(device) for _ in range(2)
        )
        self.target_discriminator, self.source_discriminator = (
            make_discriminator(channels, self.width).to(device) for _ in range(2)
        )
        classifiers = [
            p for m in (self.model, self.source_model) for p in m.parameters() if p.requires_grad
        ]
        generators = [*self.to_target.parameters(), *self.to_source.parameters()]
        discriminators = [
            *self.target_discriminator.parameters(),
            *self.source_discriminator.parameters(),
        ]
        adversarial = {"lr": self.redraw_lr, "betas": (0.5, 0.999)}  # usual for GANs
        self.optimizer = torch.optim.Adam(
            [{"params": classifiers, "lr": self.lr}, {"params": generators, **adversarial}],
            fused=True,
        )
        self.discriminator_optimizer = torch.optim.Adam(
            [{"params": discriminators, **adversarial}], fused=True
        )

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        xs, xt = (
            in_unit_range(images(batch.x, self.name), self.name) for batch in (source, target)
        )
        if done == 0:
            self.build(xs.shape[1])
        as_target, as_source = self.to_target(xs), self.to_source(xt)
        real_or_fake = discriminator_loss(
            self.target_discriminator(xt), self.target_discriminator(as_target.detach())
        )
        real_or_fake = real_or_fake + discriminator_loss(
            self.source_discriminator(xs), self.source_discriminator(as_source.detach())
        )
        descend(self.discriminator_optimizer, real_or_fake)
        style = generator_loss(self.target_discriminator(as_target)) + generator_loss(
            self.source_discriminator(as_source)
        )
        class_loss = self._loss(self._logits(as_target), source.y) + self._loss(
            self._logits(xs, self.source_model), source.y
        )
        back = self.to_source(as_target)
        consistency = self._loss(self._logits(back, self.source_model), source.y)
        loss = (
            self.style_weight * style
            + self.class_weight * class_loss
            + self.consistency_weight * consistency
        )
        if self.self_label_weight and done >= self.self_label_from * self.steps:
            logits = self._logits(as_source, self.source_model)
            loss = loss + self.self_label_weight * F.cross_entropy(
                logits, logits.detach().argmax(1)
            )
        descend(self.optimizer, loss)
        return {
            "loss": loss.detach(),
            "style": style.detach(),
            "consistency": consistency.detach(),
        }
