"""Maximum softmax probability."""

from __future__ import annotations

from unseen.detection.logits import LogitDetector
from unseen.functional import scores


class MaxSoftmax(LogitDetector):
    name = "max_softmax"
    summary = "1 - the highest class probability"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified Examples, ICLR 2017"

    from_logits = staticmethod(scores.max_softmax)
