"""Uncertainty scores of logits, probabilities or features; higher is less certain."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def max_softmax(logits: Tensor) -> Tensor:
    """Return 1 - the highest class probability, (N, C, ...) -> (N, ...).

    Hendrycks and Gimpel, ICLR 2017.
    """
    return 1 - logits.softmax(1).amax(1)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the class probabilities in nats, (N, C, ...) -> (N, ...)."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def energy(logits: Tensor) -> Tensor:
    """Return the free energy at temperature 1, (N, C, ...) -> (N, ...).

    Liu et al., NeurIPS 2020.
    """
    return -logits.logsumexp(1)


def total_variance(logits: Tensor) -> Tensor:
    """Return the variance of the one-hot label, 1 - sum of p squared, (N, C, ...) -> (N, ...).

    If the logits are those of a mean over passes, it is the variance within and between passes.
    """
    return 1 - logits.softmax(1).square().sum(1)


def predictive_variance(variance: Tensor) -> Tensor:
    """Sum the variance of the probabilities over classes, (N, C, ...) -> (N, ...)."""
    return variance.sum(1)


def mean_over_pixels(values: Tensor) -> Tensor:
    """Average all axes but the first, (N, ...) -> (N, 1)."""
    return values.reshape(values.shape[0], -1).mean(1, keepdim=True)  # len() cannot be exported


def running_moments(passes: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and unbiased variance over two or more tensors, one in memory at a time.

    Welford's recurrence.
    """
    mean, squares, count = torch.zeros(()), torch.zeros(()), 0
    for count, values in enumerate(passes, start=1):
        deviation = values - mean
        mean = mean + deviation / count
        squares = squares + deviation * (values - mean)
    return mean, squares / (count - 1)


def relative_deviation(mean: Tensor, source_mean: Tensor, variance: Tensor | None = None) -> Tensor:
    """Return the mean over features of |mean - source mean| / source mean, (..., F) -> (...).

    With the variance of the mean, its expected share of the squared deviation is subtracted.
    """
    deviation = (mean - source_mean).abs()
    if variance is not None:
        deviation = (deviation.square() - variance).clamp_min(0).sqrt()
    # A sigma may underflow to 0. If it does so on both sides, nothing deviates.
    least = torch.finfo(source_mean.dtype).tiny
    return (deviation / source_mean.clamp_min(least)).mean(-1)


def nearest_squared_distance(points: Tensor, centres: Tensor) -> Tensor:
    """Return the squared distance of each point to its nearest centre, (N, F), (C, F) -> (N,)."""
    distances = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.amin(1).square()
