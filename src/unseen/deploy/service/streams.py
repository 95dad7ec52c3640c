"""The samples of each domain, judged in windows.

The samples of a domain are gathered into windows of one size. Each full window gets a reading: the
score of the window, and that of an exponentially forgetting mean over the windows so far, which
detects a slow drift. Both have the thresholds of their sizes, each at half of the rate. The memory
of a stream is bounded: the samples of one window, and sums.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from unseen.deploy.reductions import Array
from unseen.deploy.seen import Seen
from unseen.deploy.service.settings import Watching
from unseen.errors import UnseenError
from unseen.functional.verdict import Outcome, Verdict

HISTORY = 240  # readings that are kept of a domain
_log = logging.getLogger(__name__)


class Judge(Protocol):
    """What streams need of a scorer."""

    def join(self, parts: Any) -> Seen: ...
    def judge(self, seen: Any, tolerance: float = ..., rate: float | None = ...) -> Verdict: ...
    def threshold(self, n: int, rate: float | None = None) -> float: ...
    def domain_score_of(self, features: Array) -> float: ...


@dataclass(frozen=True)
class WindowReading:
    """What a window of a domain showed."""

    time: float  # seconds since 1970
    number: int  # of the window, from 1
    n: int
    score: float
    threshold: float
    slow_score: float
    slow_threshold: float
    verdict: Outcome
    predicted_accuracy: float | None
    low: float | None  # of the accuracy, at 90 %
    high: float | None
    source_accuracy: float | None
    sentence: str

    @property
    def slow_alarm(self) -> bool:
        return self.slow_score > self.slow_threshold

    @property
    def alarm(self) -> bool:
        """Whether the window is shifted or worse, or the windows drift."""
        return self.verdict != "ok"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "alarm": self.alarm, "slow_alarm": self.slow_alarm}


class Stream:
    """The samples of one domain: `update(seen)` adds some, `compute()` sums them up."""

    def __init__(self, watching: Watching, features: int) -> None:
        self.watching = watching
        self.samples = self.windows = self.alarms = 0
        self.gathered: list[Seen] = []
        self.sum: Array = np.zeros(features)
        self.weight = self.squares = 0.0
        self.history: deque[WindowReading] = deque(maxlen=HISTORY)
        self.last_time = 0.0

    @property
    def waiting(self) -> int:
        """Number of samples of the window that is not full yet."""
        return sum(len(part.scores) for part in self.gathered)

    @property
    def latest(self) -> WindowReading | None:
        return self.history[-1] if self.history else None

    @property
    def alarms_now(self) -> bool:
        """Whether the last window has an alarm."""
        return self.latest is not None and self.latest.alarm

    def update(self, seen: Seen, scorer: Judge, time: float) -> list[WindowReading]:
        """Add samples; return a reading for every window that they complete."""
        seen = replace(seen, logits=np.empty((len(seen.scores), 0), np.float32))  # not judged
        readings, start, n = [], 0, len(seen.scores)
        while start < n:
            stop = min(n, start + self.watching.window - self.waiting)
            self.gathered.append(seen.take(np.arange(start, stop)))
            start = stop
            if self.waiting == self.watching.window:
                # Not an error of this request: the samples of others may be in the window too, and
                # after a restart the same window is judged again.
                try:
                    readings.append(self._close_window(scorer, time))
                except UnseenError as error:
                    _log.warning(
                        "a window of %d samples is left out: %s", self.watching.window, error
                    )
        self.samples += n
        self.last_time = time
        return readings

    def compute(self) -> dict[str, Any]:
        """Return counts, and the last reading."""
        latest = self.latest
        return {
            "samples": self.samples,
            "windows": self.windows,
            "alarms": self.alarms,
            "gathered": self.waiting,
            "window": self.watching.window,
            "alarm": self.alarms_now,
            "reading": None if latest is None else latest.as_dict(),
        }

    def _close_window(self, scorer: Judge, time: float) -> WindowReading:
        seen, watching = scorer.join(self.gathered), self.watching
        self.gathered = []
        verdict = scorer.judge(seen, watching.tolerance, watching.rate / 2)
        total = seen.features.astype(np.float64).sum(0)
        sum_ = watching.decay * self.sum + total
        weight = watching.decay * self.weight + seen.n
        squares = watching.decay**2 * self.squares + seen.n
        mean = (sum_ / weight).astype(seen.features.dtype)
        slow = scorer.domain_score_of(mean[None])
        size = watching.size_with_threshold(weight**2 / squares)
        slow_threshold = scorer.threshold(size, watching.rate / 2)
        drifts = slow > slow_threshold and verdict.verdict == "ok"
        low, high = verdict.interval or (None, None)
        # From here on nothing raises: a window counts whole or not at all.
        self.sum, self.weight, self.squares = sum_, weight, squares
        self.windows += 1
        reading = WindowReading(
            time=time,
            number=self.windows,
            n=seen.n,
            score=verdict.score,
            threshold=verdict.threshold,
            slow_score=slow,
            slow_threshold=slow_threshold,
            verdict="shifted" if drifts else verdict.verdict,
            predicted_accuracy=verdict.predicted_accuracy,
            low=low,
            high=high,
            source_accuracy=verdict.source_accuracy,
            sentence=_drift(slow, slow_threshold) if drifts else verdict.sentence,
        )
        self.alarms += reading.alarm
        self.history.append(reading)
        return reading


def _drift(score: float, threshold: float) -> str:
    times = score / max(threshold, 1e-12)
    return (
        "Drifts slowly: this window alone looks like the source, the mean of the last windows "
        f"does not; the slow score is {times:.1f} times its threshold."
    )
