"""What one pass shows of samples, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from unseen.deploy.reductions import Array

LabelKind = Literal["classes", "several", "number", "map"]
CORRECTNESS = "correctness"  # the signal with a probability for each sample


@dataclass(frozen=True)
class Seen:
    """What one pass shows of samples. Of several passes, `Scorer.join` makes one."""

    logits: Array  # (N, C) or (N, C, ...)
    scores: Array  # (N,)
    features: Array  # (N, F) of the detector
    signals: dict[str, Array]  # (N, F) by signal; those of optimal transport are made of rows
    rows: Array | None = None  # (N, P, C) of the logits that optimal transport reads

    @property
    def n(self) -> int:
        return len(self.logits)

    @property
    def mean_features(self) -> Array:
        return np.asarray(self.features.astype(np.float64).mean(0))

    @property
    def raw_correctness(self) -> Array | None:
        """Probability that each prediction is correct, before its mean is set, (N,)."""
        return 1 - self.signals[CORRECTNESS][:, 0] if CORRECTNESS in self.signals else None

    def take(self, index: Array) -> Seen:
        """Return what was seen of some of the samples; their signals stay as they are."""
        return Seen(
            self.logits[index],
            self.scores[index],
            self.features[index],
            {name: values[index] for name, values in self.signals.items()},
            None if self.rows is None else self.rows[index],
        )


class DeployedEstimate(NamedTuple):
    """An estimated accuracy with its interval."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool  # further from every synthetic shift than those are from each other
    n: int
    scores: dict[str, float]  # of the signals; higher is worse
