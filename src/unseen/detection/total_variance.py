"""Total predictive variance."""

from __future__ import annotations

from unseen.detection.logits import LogitDetector
from unseen.functional import scores


class TotalVariance(LogitDetector):
    name = "total_variance"
    summary = "variance of the one-hot label under the mean prediction: within and between passes"
    paper = "Depeweg et al., Decomposition of Uncertainty in Bayesian Deep Learning, ICML 2018"

    from_logits = staticmethod(scores.total_variance)
