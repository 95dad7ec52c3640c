"""Sums, readings and evidence of a stream of batches. No torch.

A batch of the source has p-values that are not small. Each becomes an e-value, whose mean on the
source is at most 1, and the evidence of a stream is the Shiryaev-Roberts sum of their products,

    M <- e (M + 1),   e = (1 - p + p log p) / (p log^2 p).

M - t is a supermartingale on the source: an alarm at M >= c, after which M starts at 0, comes after
c batches on average or later, however often one looks. Shin, Ramdas, Rinaldo, E-detectors, 2022;
Vovk and Wang, E-values, 2021, for e.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.functional.verdict import Outcome

Array = NDArray[Any]

SIZE_STEP = 1.5  # ratio of neighbouring sizes in the table of thresholds


@dataclass(frozen=True)
class Reading:
    """Scores and alarms of one batch."""

    batch: int  # position in the stream, from 1
    n: int
    score: float
    threshold: float
    slow_score: float  # of the forgetting mean
    slow_threshold: float
    batch_alarm: bool
    slow_alarm: bool
    verdict: Outcome | None = None  # with an accuracy estimator
    predicted_accuracy: float | None = None
    interval: tuple[float, float] | None = None  # of the accuracy, at 90 %
    evidence: float | None = None  # of the stream so far, with a stated rate of the stream
    evidence_limit: float | None = None

    @property
    def alarm(self) -> bool:
        """Whether the batch is shifted or worse; with a rate of the stream, its alarm."""
        if self.evidence is not None and self.evidence_limit is not None:
            return self.evidence >= self.evidence_limit
        worse = self.verdict in ("failing", "unknown")
        return self.batch_alarm or self.slow_alarm or worse


@dataclass(frozen=True)
class StreamSummary:
    """Scores and alarms of the stream so far."""

    batches: int
    n: int
    alarms: int  # batches with an alarm
    score: float  # of all samples, equally weighted
    threshold: float
    slow_score: float  # of the forgetting mean
    slow_threshold: float
    verdict: Outcome | None = None  # on all samples, with an accuracy estimator
    predicted_accuracy: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def alarm(self) -> bool:
        """Whether the stream is shifted or worse."""
        shifted = self.score > self.threshold or self.slow_score > self.slow_threshold
        return shifted or self.verdict in ("failing", "unknown")


@dataclass(frozen=True)
class ForgettingMean:
    """Decayed sums of features, weights and squared weights of batches.

    S <- d S + sum of features,   W <- d W + n,   V <- d^2 V + n
    """

    features: Array  # S, (F,) float64
    weight: float = 0.0  # W
    squares: float = 0.0  # V

    def add(self, features: Array, n: int, decay: float) -> ForgettingMean:
        """Add a batch of n samples with this sum of features."""
        return ForgettingMean(
            decay * self.features + features, decay * self.weight + n, decay**2 * self.squares + n
        )

    def then(self, later: ForgettingMean, batches: int, decay: float) -> ForgettingMean:
        """Return that of these batches followed by the later ones."""
        d = decay**batches
        return ForgettingMean(
            d * self.features + later.features,
            d * self.weight + later.weight,
            d**2 * self.squares + later.squares,
        )

    @property
    def mean(self) -> Array:
        return np.asarray(self.features / self.weight)

    @property
    def effective_size(self) -> float:
        """Number of equally weighted samples with the variance of this mean."""
        return self.weight**2 / self.squares if self.squares else 0.0


@dataclass(frozen=True)
class Evidence:
    """Evidence that a stream has left the source, since the last alarm."""

    value: float = 0.0  # M
    product: float = 1.0  # of the e-values since then: M is value + product * M before

    def add(self, e: float, limit: float) -> Evidence:
        """Add a batch; after an alarm, the evidence starts at 0."""
        start = self if self.value < limit else Evidence()
        return Evidence(e * (start.value + 1), min(e * start.product, 1e300))

    def then(self, later: Evidence) -> Evidence:
        """Return the evidence of these batches followed by later ones without an alarm."""
        return replace(later, value=later.value + later.product * self.value)


def e_value(p_value: float) -> float:
    """Return an e-value of a p-value: the mean of k p^(k - 1) over k in 0..1."""
    p = min(max(p_value, 1e-300), 1.0)
    if p > 0.999:  # the limit at 1, where the quotient is 0 / 0
        return 0.5
    log = math.log(p)
    return (1 - p + p * log) / (p * log**2)


def threshold_sizes(batch: int, decay: float) -> list[int]:
    """Return the sizes with a threshold: from 1 to the final effective size, and the batch."""
    last = math.floor(batch * (1 + decay) / (1 - decay))
    steps = [1]
    while steps[-1] < last:
        steps.append(max(steps[-1] + 1, math.floor(steps[-1] * SIZE_STEP)))
    return sorted({size for size in steps if size < last} | {batch, last})


def tabulated_size(sizes: Sequence[int], n: float) -> int:
    """Return the largest tabulated size up to n: its threshold is never too low."""
    return sizes[max(0, bisect.bisect_right(sizes, n + 1e-6) - 1)]
