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
from typing import Any, Literal, Protocol

from unseen.functional.accuracy_model import NullAccuracy

Outcome = Literal["ok", "shifted", "failing", "unknown"]
TOLERANCE = 0.05
LARGEST_BATCH = 10_000  # in null distributions; larger ones have this threshold, a little high
RATE = 0.01


class Estimated(Protocol):
    """What a verdict needs of an estimate."""

    @property
    def accuracy(self) -> float: ...
    @property
    def extrapolates(self) -> bool: ...
    @property
    def n(self) -> int: ...


class Fitted(Protocol):
    """What a verdict needs of an accuracy estimator."""

    @property
    def source_accuracy(self) -> float: ...
    @property
    def null(self) -> NullAccuracy: ...


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
        found = f"; {times}" if self.score > self.threshold else ""
        source = f"{100 * self.source_accuracy:.0f} % on the source"
        return {
            "ok": f"Looks like the source: {expected}, {source}.",
            "shifted": f"Differs from the source ({times}), but should hold: {expected}, {source}.",
            "failing": f"Expected to lose accuracy: {expected}, {source}{found}. Collect labels "
            "and adapt.",
            "unknown": f"Unlike anything this model was tested with ({times}): do not rely on it "
            "before checking labelled samples.",
        }[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """Return every field, the alarm, the multiple of the threshold and the sentence."""
        extra = {"alarm": self.alarm, "times_threshold": self.times_threshold}
        interval = None if self.interval is None else list(self.interval)
        return {**asdict(self), "interval": interval, **extra, "sentence": self.sentence}


def outcome(
    shifted: bool, estimate: Estimated, estimator: Fitted, tolerance: float, rate: float
) -> Outcome:
    """Return the verdict from the test of the score and the estimate."""
    loss = estimator.source_accuracy - estimate.accuracy
    failing = loss > tolerance and loss > estimator.null.margin(estimate.n, rate)
    if estimate.extrapolates and (shifted or failing):
        return "unknown"
    if failing:
        return "failing"
    return "shifted" if shifted else "ok"
