"""A verdict on samples of one domain: ok, shifted, failing or unknown.

Two tests, each with a stated error on fresh source batches of the same size:

shifted  The domain score exceeds its threshold.
failing  The estimated accuracy is below the source's by more than the tolerance, and lower than
         source batches are estimated by chance.

Where accuracy is not defined, as in regression, only the first test is made.

A domain that differs from the source is unknown if its signals are further from every synthetic
shift than those are from each other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unseen.checks import check_fraction, check_number
from unseen.detection.accuracy import AccuracyEstimator, Estimate
from unseen.detection.chunks import pieces_of
from unseen.detection.detector import Detector, detector_of
from unseen.detection.one_pass import Observation
from unseen.errors import UnseenError
from unseen.nn.inputs import inputs

Outcome = Literal["ok", "shifted", "failing", "unknown"]
TOLERANCE = 0.05
RATE = 0.01


@dataclass(frozen=True)
class Verdict:
    """What to expect of a domain, and why."""

    verdict: Outcome
    score: float
    threshold: float  # of the score, at the stated rate
    p_value: float  # of a score at least this high on the source
    predicted_accuracy: float | None  # None where there are no classes, as in regression
    interval: tuple[float, float] | None  # of the accuracy, at 90 %
    source_accuracy: float | None
    failing_p_value: float | None  # of an estimate at least this low on the source
    n: int
    tolerance: float | None
    rate: float

    @property
    def alarm(self) -> bool:
        """Whether the domain is shifted or worse."""
        return self.verdict != "ok"

    @property
    def times_threshold(self) -> float:
        """The score as a multiple of its threshold."""
        return self.score / max(self.threshold, 1e-12)

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        times = f"the score is {self.times_threshold:.1f} times its threshold"
        if self.predicted_accuracy is None or self.interval is None or self.source_accuracy is None:
            if self.verdict == "ok":
                return f"Looks like the source: {times}."
            return (
                f"Differs from the source: {times}. How much the predictions lose is not known; "
                "check labelled samples."
            )
        low, high = (f"{100 * end:.0f}" for end in self.interval)
        expected = f"expected accuracy {100 * self.predicted_accuracy:.0f} % ({low} to {high} %)"
        source = f"{100 * self.source_accuracy:.0f} % on the source"
        return {
            "ok": f"Looks like the source: {expected}, {source}.",
            "shifted": f"Differs from the source ({times}), but should hold: {expected}, {source}.",
            "failing": f"Will fail: {expected}, {source}; {times}. Collect labels and adapt.",
            "unknown": f"Unlike anything this model was tested with ({times}): do not rely on it "
            "before checking labelled samples.",
        }[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """Return every field, the alarm, the multiple of the threshold and the sentence."""
        extra = {"alarm": self.alarm, "times_threshold": self.times_threshold}
        interval = None if self.interval is None else list(self.interval)
        return {**asdict(self), "interval": interval, **extra, "sentence": self.sentence}


def judge(
    detector: Detector,
    estimator: AccuracyEstimator,
    observation: Observation,
    tolerance: float = TOLERANCE,
    rate: float = RATE,
) -> Verdict:
    """Judge samples of one domain from an observation of them."""
    check_number("tolerance", tolerance, 0)
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


def outcome(
    shifted: bool, estimate: Estimate, estimator: AccuracyEstimator, tolerance: float, rate: float
) -> Outcome:
    """Return the verdict from the test of the score and the estimate."""
    loss = estimator.source_accuracy - estimate.accuracy
    failing = loss > tolerance and loss > estimator.null.margin(estimate.n, rate)
    if estimate.extrapolates and (shifted or failing):
        return "unknown"
    if failing:
        return "failing"
    return "shifted" if shifted else "ok"


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
