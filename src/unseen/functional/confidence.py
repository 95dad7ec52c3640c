"""Label-free accuracy from confidence: average confidence and ATC."""

from __future__ import annotations

from torch import Tensor

from unseen.functional.scores import entropy


def average_confidence(logits: Tensor) -> float:
    """Return the mean highest class probability: the accuracy of a calibrated model."""
    return float(logits.softmax(1).amax(1).double().mean())


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
