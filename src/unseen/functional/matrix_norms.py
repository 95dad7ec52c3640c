"""Norms of the matrix of predictions, which fall with accuracy: nuclear norm and MaNo."""

from __future__ import annotations

import torch
from torch import Tensor

MANO_POWER = 4


def second_moments(probabilities: Tensor) -> Tensor:
    """Return the outer product of each row with itself, flat, (N, C) -> (N, C * C)."""
    return (probabilities.unsqueeze(2) * probabilities.unsqueeze(1)).flatten(1)


def nuclear_norm(moments: Tensor) -> Tensor:
    """Return the nuclear norm of N predictions over sqrt(N C), from their mean second moments.

    The singular values of P are the roots of the eigenvalues of P'P, so the mean of
    `second_moments` is enough, (..., C * C) -> (...). The norm is 1 for confident predictions that
    are spread over all classes.

    Deng, Suh, Gould and Zheng, Confidence and Dispersity Speak, ICML 2023.
    """
    classes = round(moments.shape[-1] ** 0.5)
    matrix = moments.double().reshape(*moments.shape[:-1], classes, classes)
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    norm: Tensor = values.clamp_min(0).sqrt().sum(-1) / classes**0.5
    return norm.to(moments)


def softrun(logits: Tensor, exponential: bool) -> Tensor:
    """Normalize logits by softmax, or by its Taylor polynomial of degree 2, (N, C) -> (N, C)."""
    if exponential:
        return logits.softmax(1)
    positive = 1 + logits + logits.square() / 2  # at least 1/2
    return positive / positive.sum(1, keepdim=True)


def mano_moments(logits: Tensor, exponential: bool) -> Tensor:
    """Return the mean over classes of softrun to the power 4, (N, C) -> (N, 1)."""
    return softrun(logits, exponential).pow(MANO_POWER).mean(1, keepdim=True)


def mano(moments: Tensor) -> Tensor:
    """Return MaNo, the scaled norm of the predictions, from mean moments, (..., 1) -> (...).

    Xie, Odonnat, Feofanov et al., MaNo: Exploiting Matrix Norm for Unsupervised Accuracy Estimation
    Under Distribution Shifts, NeurIPS 2024.
    """
    return moments.squeeze(-1).clamp_min(0).pow(1 / MANO_POWER)
