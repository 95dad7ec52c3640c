"""Label-free accuracy from confidence: average confidence, DoC, ATC, and their temperature."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unseen.functional.scores import entropy

TEMPERATURES = (0.05, 20.0)  # the range that is searched


def average_confidence(logits: Tensor) -> float:
    """Return the mean highest class probability: the accuracy of a calibrated model."""
    return float(logits.softmax(1).amax(1).double().mean())


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature T for which softmax(logits / T) has the least negative log-likelihood.

    Guo, Pleiss, Sun and Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
    """
    from scipy.optimize import minimize_scalar  # slow to import

    rows, index = logits.double(), labels.unsqueeze(1)

    def loss(log_temperature: float) -> float:
        log_p = (rows / math.exp(log_temperature)).log_softmax(1)
        return -float(log_p.gather(1, index).mean())

    low, high = map(math.log, TEMPERATURES)
    return math.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x)


def difference_of_confidences(
    confidence: float, source_confidence: float, source_accuracy: float
) -> float:
    """Return the source accuracy minus the loss of average confidence.

    Guillory et al., Predicting with Confidence on Unseen Distributions, ICCV 2021.
    """
    return source_accuracy - (source_confidence - confidence)


def negative_entropy(logits: Tensor) -> Tensor:
    """Return the confidence that ATC thresholds, (N, C, ...) -> (N, ...)."""
    return -entropy(logits)


def atc_threshold(confidence: Tensor, correct: Tensor) -> float:
    """Threshold at which the fraction of confident source samples equals source accuracy.

    Garg et al., Leveraging Unlabeled Data to Predict Out-of-Distribution Performance, ICLR 2022.
    """
    ordered = confidence.flatten().double().sort().values
    errors = int(correct.numel() - correct.sum())
    return float(ordered[min(errors, len(ordered) - 1)])


def average_thresholded_confidence(confidence: Tensor, threshold: float) -> float:
    """Return the fraction of predictions with at least that confidence: the ATC estimate."""
    return float((confidence.double() >= threshold).double().mean())


def transported_confidence(probabilities: Tensor, marginal: Tensor) -> Tensor:
    """Return the probability of the label that optimal transport assigns to each sample, (N,).

    The N predictions are matched with N labels in the proportions of `marginal` (C,), so that the
    mean of 1 - probability is least. That mean is COT, an estimate of the error.

    Lu et al., Characterizing Out-of-Distribution Error via Optimal Transport, NeurIPS 2023.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    n = len(probabilities)
    places = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    ends = marginal.double().cumsum(0) / marginal.double().sum()
    labels = torch.searchsorted(ends, places).clamp(max=len(marginal) - 1)
    matched = probabilities[:, labels]
    rows, columns = linear_sum_assignment(matched.double().cpu().numpy(), maximize=True)
    return matched[torch.from_numpy(rows), torch.from_numpy(columns)]


def shift_to_mean(probabilities: Tensor, mean: float) -> Tensor:
    """Add one number to the log odds so that the probabilities have the mean, (N,) -> (N,).

    Their order stays.
    """
    odds = probabilities.double().clamp(1e-9, 1 - 1e-9).logit()
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (odds + middle).sigmoid().mean() < mean else (low, middle)
    return (odds + low).sigmoid()
