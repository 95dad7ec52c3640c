"""Entropy of the prediction."""

from __future__ import annotations

from unseen.detection.logits import LogitDetector
from unseen.functional import scores


class Entropy(LogitDetector):
    name = "entropy"
    summary = "entropy of the class probabilities, in nats"
    paper = "Shannon, A Mathematical Theory of Communication, 1948"

    from_logits = staticmethod(scores.entropy)
