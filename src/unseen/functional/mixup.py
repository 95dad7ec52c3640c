"""Mixup of clean and perturbed features, and of their labels.

    lam ~ Beta(a, b),   h+ <- lam h + (1 - lam) h+,   y+ = lam y + (1 - lam) y~              (Eq. 3)

y~ is the label y, smoothed with probability tau: rho on the true class, the rest shared equally.
The choice is relaxed to a number in (0, 1), so that tau receives a gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.functional.noise import Gaussian


class Mixing(NamedTuple):
    """Distribution of the mixup of each sample, (B,) each: Beta(a, b) and Bernoulli(tau)."""

    a: Tensor
    b: Tensor
    tau: Tensor


def even_mixing(gaussian: Gaussian) -> Mixing:
    """Return Beta(1, 1) and Bernoulli(1/2), independent of the noise: the ablation `random`."""
    ones = gaussian.mu.new_ones(gaussian.mu.shape[0])
    return Mixing(ones, ones, ones / 2)


def relaxed_bernoulli(tau: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """Return a relaxed Bernoulli(tau) sample in (0, 1), differentiable with respect to tau."""
    eps = torch.finfo(tau.dtype).eps
    return ((tau.logit(eps) + uniform.logit(eps)) / temperature).sigmoid()


def mix_features(h: Tensor, h_plus: Tensor, lam: Tensor) -> Tensor:
    """Return lam h + (1 - lam) h+ with one lam for each row."""
    return torch.lerp(h_plus, h, lam.reshape(-1, *[1] * (h.dim() - 1)).to(h.dtype))


def smooth(y: Tensor, classes: int, rho: float | Tensor) -> Tensor:
    """Put rho on the true class and share the rest: (N, ...) -> (N, classes, ...)."""
    one_hot = F.one_hot(y, classes).movedim(-1, 1)
    rho = torch.as_tensor(rho, device=y.device)
    return torch.where(one_hot.bool(), rho, (1 - rho) / (classes - 1))


def smooth_binary(y: Tensor, rho: float) -> Tensor:
    """Return labels of 0 and 1 at 1 - rho and rho: `smooth` for two classes."""
    return rho * y + (1 - rho) * (1 - y)


def mix_targets(y: Tensor, lam: Tensor, smoothing: Tensor, classes: int, rho: float) -> Tensor:
    """Return lam y + (1 - lam) y~, with y~ between y (smoothing 0) and smooth(y) (smoothing 1).

    `lam` and `smoothing` have one value for each row of y.
    """
    per_row = (-1, *[1] * y.dim())
    lam, smoothing = lam.reshape(per_row), smoothing.reshape(per_row)
    hard = smooth(y, classes, torch.ones((), dtype=lam.dtype, device=y.device))
    soft = smooth(y, classes, torch.tensor(rho, dtype=lam.dtype, device=y.device))
    return lam * hard + (1 - lam) * (hard + smoothing * (soft - hard))


def mixed_loss(
    logits: Tensor, y: Tensor, lam: Tensor, smoothing: Tensor, rho: float, ignore: int
) -> Tensor:
    """Return the cross-entropy of mixed rows (K*B, C, ...) with their mixed labels.

    `lam` and `smoothing` are (K, B), y is (B, ...); the rows are draw-major.
    """
    targets = torch.cat([y] * lam.shape[0])
    counted = targets != ignore
    soft = mix_targets(
        targets.where(counted, 0), lam.flatten(), smoothing.flatten(), logits.shape[1], rho
    )
    per_label = -(soft.to(logits) * logits.log_softmax(1)).sum(1)
    return (per_label * counted).sum() / counted.sum()
