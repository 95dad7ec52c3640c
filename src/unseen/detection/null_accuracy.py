"""How low the estimated accuracy of fresh source batches falls by chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unseen.detection.combined import Combined
from unseen.detection.detector import Detector
from unseen.detection.one_pass import Observation
from unseen.functional.accuracy_curve import Floats
from unseen.functional.bootstrap import resampled_means

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5)
RESAMPLES = 1000
ROWS = 1000  # held-out samples that are resampled
NORMAL_95 = 1.645  # the 95 % quantile of the standard normal distribution


@dataclass
class NullAccuracy:
    """Quantiles of the estimated accuracy of source batches, minus the source's accuracy."""

    quantiles: Floats  # (SIZES, RATES), not positive

    @classmethod
    def fit(
        cls, combined: Combined, signals: Mapping[str, Detector], source: Observation
    ) -> NullAccuracy:
        """Resample the held-out source.

        The held-out samples are a sample themselves: their own error is subtracted at a confidence
        of 95 %, so that most calibrations keep the stated rate.
        """
        rows = {name: source.features[name][:ROWS] for name in combined.names}
        own = combined.accuracies(_resampled(signals, rows, len(source.logits[:ROWS])))
        table = []
        for size in SIZES:
            accuracies = combined.accuracies(_resampled(signals, rows, size))
            table.append(np.quantile(accuracies, RATES) - source.accuracy - NORMAL_95 * own.std())
        return cls(np.minimum(np.array(table), 0))

    def margin(self, n: int, rate: float) -> float:
        """Return how far the estimate of a source batch of n falls below the source's accuracy."""
        row = self._row(n)
        return float(-np.interp(np.log(rate), np.log(RATES), row))

    def p_value(self, n: int, difference: float) -> float:
        """Return the probability that a source batch of n is estimated at most this much above.

        `difference` is the estimate minus the source's accuracy. The least probability is that of
        the table.
        """
        row = self._row(n)
        if difference >= row[-1]:
            return 1.0
        return float(np.exp(np.interp(difference, row, np.log(RATES))))

    def spread(self, n: int) -> float:
        """Return how far the estimate scatters at 90 % for n samples."""
        return self.margin(n, 0.05)

    def _row(self, n: int) -> Floats:
        """Return the quantiles of the largest tabulated size up to n, which scatter most."""
        index = max(i for i, size in enumerate(SIZES) if size <= max(1, n))
        return np.maximum.accumulate(self.quantiles[index])


def _resampled(signals: Mapping[str, Detector], rows: Mapping[str, Tensor], size: int) -> Floats:
    """Return the scores of every signal for resampled batches of a size, (RESAMPLES, S)."""
    scores = []
    for name, features in rows.items():
        # The same draws for every signal: one seed.
        generator = torch.Generator().manual_seed(0)
        means = resampled_means(features, size, RESAMPLES, generator)
        variance = features.double().var(0, correction=0) / size
        scores.append(signals[name].reduce_mean(means, variance).numpy())
    return np.stack(scores, -1)
