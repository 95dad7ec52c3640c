"""A verdict on samples of one domain, from one pass; functional/verdict.py has the rule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unseen.checks import check_fraction
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.chunks import pieces_of
from unseen.detection.detector import Detector, detector_of
from unseen.detection.one_pass import Observation
from unseen.errors import UnseenError
from unseen.functional.verdict import RATE as RATE
from unseen.functional.verdict import TOLERANCE as TOLERANCE
from unseen.functional.verdict import Outcome as Outcome
from unseen.functional.verdict import Verdict as Verdict
from unseen.functional.verdict import outcome as outcome
from unseen.nn.inputs import inputs


def judge(
    detector: Detector,
    estimator: AccuracyEstimator,
    observation: Observation,
    tolerance: float = TOLERANCE,
    rate: float = RATE,
) -> Verdict:
    """Judge samples of one domain from an observation of them."""
    check_fraction("tolerance", tolerance, zero=True)
    check_fraction("rate", rate)
    features = observation.own
    if features is None:
        raise UnseenError(f"the samples were observed without {detector.name}")
    score = detector.domain_score_of(features)
    threshold = detector.threshold(len(features), rate)
    estimate = estimator.estimate_from(observation)
    return Verdict(
        verdict=outcome(score > threshold, estimate, estimator, tolerance, rate),
        score=score,
        threshold=threshold,
        p_value=detector.p_value(score, len(features)),
        predicted_accuracy=estimate.accuracy,
        interval=(estimate.low, estimate.high),
        source_accuracy=estimator.source_accuracy,
        failing_p_value=estimator.null.p_value(
            estimate.n, estimate.accuracy - estimator.source_accuracy
        ),
        n=len(features),
        tolerance=tolerance,
        rate=rate,
    )


@torch.no_grad()
def verdict_by_score(net: Any, x: Any, rate: float = RATE) -> Verdict:
    """Judge x by the domain score alone, ok or shifted, where accuracy is not defined."""
    detector = detector_of(net)
    looks = pieces_of(x, detector.look)
    return judge_score(detector, torch.cat([look.features.cpu() for look in looks]), rate)


def judge_score(detector: Detector, features: Tensor, rate: float = RATE) -> Verdict:
    """Judge samples by the domain score of their features, (N, F): ok or shifted."""
    check_fraction("rate", rate)
    score, threshold = detector.domain_score_of(features), detector.threshold(len(features), rate)
    return Verdict(
        verdict="shifted" if score > threshold else "ok",
        score=score,
        threshold=threshold,
        p_value=detector.p_value(score, len(features)),
        predicted_accuracy=None,
        interval=None,
        source_accuracy=None,
        failing_p_value=None,
        n=len(features),
        tolerance=None,
        rate=rate,
    )


@torch.no_grad()
def verdict_on(
    net: Any,
    x: Any,
    estimator: AccuracyEstimator,
    tolerance: float = TOLERANCE,
    rate: float = RATE,
) -> Verdict:
    """Judge x, samples of one domain without labels, from one pass."""
    detector = detector_of(net)
    seen = estimator.one_pass.observe(inputs(x), own=detector)
    return judge(detector, estimator, seen, tolerance, rate)
