"""Learnable label mixup: how far to go from clean to perturbed features, and what to believe of the label there.

    lam ~ Beta(a, b),   h+ <- lam h + (1 - lam) h+,   y+ = lam y + (1 - lam) y~              (Eq. 3)

y~ is y smoothed with chance tau: rho on the true class, the rest shared. (a, b, tau) come from a small head that reads the
first site's noise. Both draws carry gradients, so the head really learns.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.functional.noise import Draws, Gaussian

Mixup = Literal["learnable", "random", "none"]
LEAST, MOST = 0.5, 2.0  # the range of a and b in the authors' release, 1 + clamp(., -0.5, 1)


class Mixing(NamedTuple):
    """What the head says of each sample, (B,) each."""

    a: Tensor
    b: Tensor
    tau: Tensor


class MixupHead(nn.Module):
    """Reads (mu, sigma) of the first site, pooled over space, and gives Beta parameters and the lottery's chance."""

    def __init__(self, channels: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.net = nn.Linear(2 * channels, 3)
        with (
            torch.no_grad()
        ):  # starts near Beta(1, 1) and an even lottery, whatever the features' scale
            self.net.weight.mul_(0.1)
            self.net.bias.copy_(torch.tensor([_logit(1.0), _logit(1.0), 0.0]))

    def forward(self, gaussian: Gaussian) -> Mixing:
        pooled = torch.cat([pool(gaussian.mu, self.axis), pool(gaussian.sigma, self.axis)], dim=1)
        a, b, tau = self.net(pooled).sigmoid().unbind(1)
        return Mixing(LEAST + (MOST - LEAST) * a, LEAST + (MOST - LEAST) * b, tau)


def _logit(start: float) -> float:
    share = torch.tensor((start - LEAST) / (MOST - LEAST))
    return float(share.logit())


def pool(t: Tensor, axis: int) -> Tensor:
    """The mean over everything but batch and channels: (B, C, ...) -> (B, C), or (B, ..., C) where axis is -1."""
    t = t.movedim(axis, 1)
    return t.flatten(2).mean(2) if t.dim() > 2 else t


def even_mixing(gaussian: Gaussian) -> Mixing:
    """The ablation `random`: Beta(1, 1) and an even lottery, whatever the noise."""
    ones = gaussian.mu.new_ones(gaussian.mu.shape[0])
    return Mixing(ones, ones, ones / 2)


def lottery(tau: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """A relaxed Bernoulli(tau) in (0, 1), differentiable by tau; the lower the temperature the closer to 0 or 1."""
    eps = torch.finfo(tau.dtype).eps
    return ((tau.logit(eps) + uniform.logit(eps)) / temperature).sigmoid()


def draw_mixing(mixing: Mixing, draws: Draws, temperature: float) -> tuple[Tensor, Tensor]:
    """lam and the lottery's outcome for every draw and sample, (K, B) each."""
    won = lottery(mixing.tau, draws.uniform(mixing.tau), temperature)
    return draws.beta(mixing.a, mixing.b), won


def smooth(y: Tensor, classes: int, rho: float | Tensor) -> Tensor:
    """rho on the true class, the rest shared by the others; classes on axis 1: (N, ...) -> (N, classes, ...)."""
    hot = F.one_hot(y, classes).movedim(-1, 1)
    rho = torch.as_tensor(rho, device=y.device)
    return torch.where(hot.bool(), rho, (1 - rho) / (classes - 1))


def mix_targets(y: Tensor, lam: Tensor, won: Tensor, classes: int, rho: float) -> Tensor:
    """lam y + (1 - lam) y~ with y~ = y smoothed where the lottery won; one lam and one outcome for each row of y."""
    per_row = (-1, *[1] * y.dim())
    lam, won = lam.reshape(per_row), won.reshape(per_row)
    hard = smooth(y, classes, torch.ones((), dtype=lam.dtype, device=y.device))
    soft = smooth(y, classes, torch.tensor(rho, dtype=lam.dtype, device=y.device))
    return lam * hard + (1 - lam) * (hard + won * (soft - hard))


def mixed_loss(
    logits: Tensor, y: Tensor, lam: Tensor, won: Tensor, rho: float, ignore: int
) -> Tensor:
    """Cross-entropy of all draws' mixed rows with their mixed labels; lam and won are (K, B), y is (B, ...)."""
    targets = torch.cat([y] * lam.shape[0])  # draw-major, as the rows are
    counted = targets != ignore
    soft = mix_targets(
        targets.where(counted, 0), lam.flatten(), won.flatten(), logits.shape[1], rho
    )
    per_label = -(soft.to(logits) * logits.log_softmax(1)).sum(1)
    return (per_label * counted).sum() / counted.sum()
