"""Scores of the logits alone: any trained model has them, and they cost next to nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from unseen.detection.detector import Look, Score
from unseen.detection.source_statistics import entropy, lack_of_confidence


class LogitScore(Score):
    """A number for each sample from its logits; over the pixels of a map it is averaged."""

    @staticmethod
    @abstractmethod
    def from_logits(logits: Tensor) -> Tensor:
        """(N, C, ...) -> (N, 1)."""

    @torch.no_grad()
    def look(self, x: Any) -> Look:
        logits = self.net.predict(x)
        return Look(logits, self.from_logits(logits))


class MaxSoftmax(LogitScore):
    name = "msp"
    summary = "1 - the highest class probability"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017"

    from_logits = staticmethod(lack_of_confidence)


class Entropy(LogitScore):
    name = "entropy"
    summary = "entropy of the class probabilities, in nats"
    paper = "Shannon, A Mathematical Theory of Communication, 1948"

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        return mean_over_pixels(entropy(logits))


class Energy(LogitScore):
    name = "energy"
    summary = "minus the log of the sum of the exponentials of the logits, at temperature 1"
    paper = "Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020"

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        return mean_over_pixels(-logits.logsumexp(1))


class TotalVariance(LogitScore):
    """The law of total variance: what the passes of a Bayesian network disagree about, and what they are all unsure of."""

    name = "bnn_total"
    summary = "variance of the label itself under the mean over passes, 1 - the sum of the squared class probabilities"
    paper = "Depeweg et al., Decomposition of Uncertainty in Bayesian Deep Learning, ICML 2018"

    @staticmethod
    def from_logits(logits: Tensor) -> Tensor:
        return mean_over_pixels(1 - logits.softmax(1).square().sum(1))


def mean_over_pixels(values: Tensor) -> Tensor:
    """(N, ...) -> (N, 1)."""
    return values.reshape(len(values), -1).mean(1, keepdim=True)
