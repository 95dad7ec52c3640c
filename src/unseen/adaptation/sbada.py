"""SBADA-GAN: images of each domain are redrawn in the style of the other, and both directions must keep the class."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.adaptation.base import UNLABELLED, Adaptation, descend
from unseen.api import Batch, images, in_unit_range
from unseen.checks import check_int, check_number, check_positive


def real_or_fake(real: Tensor, fake: Tensor) -> Tensor:
    """A discriminator's least-squares loss: 1 for real images, 0 for redrawn ones."""
    return ((real - 1).square().mean() + fake.square().mean()) / 2


def looks_real(fake: Tensor) -> Tensor:
    """A generator's least-squares loss: its images should be given a 1."""
    return (fake - 1).square().mean()


class Redrawer(nn.Module):
    """Images (N, C, H, W) in 0..1 and noise -> images of the other style; at first nearly the images themselves."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.shrink = nn.Conv2d(channels + 1, width, 4, 2, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(2)
        )
        self.draw = nn.Conv2d(width + channels, channels, 3, padding=1)
        with (
            torch.no_grad()
        ):  # sigmoid(8 x - 4) is near x: on two cores there is no time to learn to copy
            weight = self.draw.weight.clone()
            weight[:, width:] = 0
            weight[range(channels), range(width, width + channels), 1, 1] = 8
            self.draw.load_state_dict({"weight": weight, "bias": torch.full((channels,), -4.0)})

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(len(x), 1, *x.shape[2:]).to(x)
        h = F.relu(self.shrink(torch.cat([x, noise], dim=1)))
        for block in self.blocks:
            h = h + block(h)
        h = F.interpolate(h, size=x.shape[2:])
        return torch.sigmoid(self.draw(torch.cat([h, x], dim=1)))


def discriminator(channels: int, width: int) -> nn.Sequential:
    """Real or redrawn? One answer for each patch, (N, 1, h, w)."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 1, 3, padding=1),
    )  # fmt: skip


class SBADA(Adaptation):
    """Two redrawers, two discriminators, a classifier for each style; the target style's is the adapted model."""

    name = "sbada"
    summary = "images redrawn in both directions, class consistency and self-labelling; needs images in 0..1"
    paper = "Russo, Carlucci, Tommasi, Caputo, From source to target and back: symmetric bi-directional adaptive GAN, CVPR 2018"
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
        self.of_source = copy.deepcopy(
            self.model
        )  # reads source style; self.model reads target style

    def begin(self, channels: int) -> None:
        """Make what depends on the images: redrawers and discriminators."""
        device = next(self.model.parameters()).device
        self.to_target, self.to_source = (
            Redrawer(channels, self.width).to(device) for _ in range(2)
        )
        self.like_target, self.like_source = (
            discriminator(channels, self.width).to(device) for _ in range(2)
        )
        classifiers = [
            p for m in (self.model, self.of_source) for p in m.parameters() if p.requires_grad
        ]
        redrawers = [*self.to_target.parameters(), *self.to_source.parameters()]
        judges = [*self.like_target.parameters(), *self.like_source.parameters()]
        calm = {
            "lr": self.redraw_lr,
            "betas": (0.5, 0.999),
        }  # the usual momentum of an adversarial game
        self.optimizer = torch.optim.Adam(
            [{"params": classifiers, "lr": self.lr}, {"params": redrawers, **calm}], fused=True
        )
        self.judging = torch.optim.Adam([{"params": judges, **calm}], fused=True)

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        ours, theirs = (
            in_unit_range(images(batch.x, self.name), self.name) for batch in (source, target)
        )
        if done == 0:
            self.begin(ours.shape[1])
        as_target, as_source = self.to_target(ours), self.to_source(theirs)
        judged = real_or_fake(self.like_target(theirs), self.like_target(as_target.detach()))
        judged = judged + real_or_fake(self.like_source(ours), self.like_source(as_source.detach()))
        descend(self.judging, judged)
        style = looks_real(self.like_target(as_target)) + looks_real(self.like_source(as_source))
        classes = self._loss(self.model(as_target), source.y) + self._loss(
            self.of_source(ours), source.y
        )
        kept = self._loss(self.of_source(self.to_source(as_target)), source.y)
        loss = (
            self.style_weight * style + self.class_weight * classes + self.consistency_weight * kept
        )
        if self.self_label_weight and done >= self.self_label_from * self.steps:
            guess = self.of_source(as_source)
            loss = loss + self.self_label_weight * F.cross_entropy(guess, guess.detach().argmax(1))
        descend(self.optimizer, loss)
        return {"loss": loss.detach(), "style": style.detach(), "class_kept": kept.detach()}
