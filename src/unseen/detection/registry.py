"""Uncertainty scores behind one small contract. SCORES is the table that the comparison, the tests and the docs read."""

from __future__ import annotations

from unseen.api import Method
from unseen.detection.detector import Look, Score
from unseen.detection.logits import Energy, Entropy, LogitScore, MaxSoftmax, TotalVariance
from unseen.detection.mahalanobis import Mahalanobis
from unseen.detection.own import BayesByBackprop, MonteCarloDropout, Sigma
from unseen.errors import UnseenError

SCORES: dict[str, type[Score]] = {
    score.name: score
    for score in (
        Sigma,
        BayesByBackprop,
        TotalVariance,
        MonteCarloDropout,
        MaxSoftmax,
        Entropy,
        Energy,
        Mahalanobis,
    )
}
# What is read off a model, by the method that trained it: the scores of one table share one model where they can.
OF_METHOD: dict[str, tuple[str, ...]] = {
    "uncertainty_guided": ("uncertainty_guided", "msp", "entropy", "energy", "mahalanobis"),
    "bnn": ("bnn", "bnn_total"),
    "mc_dropout": ("mc_dropout",),
}


def scores_of(net: Method) -> list[Score]:
    """The scores that a trained model is compared by."""
    if net.name not in OF_METHOD:
        raise UnseenError(
            f"uncertainty is compared over runs of {', '.join(OF_METHOD)}; this one is of {net.name}"
        )
    return [SCORES[name](net) for name in OF_METHOD[net.name]]


__all__ = ["SCORES", "LogitScore", "Look", "Score", "scores_of"]
