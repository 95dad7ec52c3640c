"""Free energy of the logits."""

from __future__ import annotations

from unseen.detection.logits import LogitDetector
from unseen.functional import scores


class Energy(LogitDetector):
    name = "energy"
    summary = "negative log-sum-exp of the logits, at temperature 1"
    paper = "Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020"

    from_logits = staticmethod(scores.energy)
