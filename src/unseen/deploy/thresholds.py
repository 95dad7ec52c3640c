"""Alarm thresholds from held-out features, in numpy.

They equal those of `unseen.detection.threshold`: numpy and torch have the same generator, the
Mersenne Twister, so the same resamples are drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.deploy.reductions import Array, Reduction
from unseen.functional.verdict import LARGEST_BATCH

# Of unseen.detection.threshold, which a test compares with this file.
RESAMPLES = 2000
CALIBRATIONS = 20
CONFIDENCE = 0.95
SMALL = 8
UNSEEN_SAMPLES = 3
CHUNK_NUMBERS = 4_000_000

Integers = NDArray[np.int64]


class TorchRandom:
    """The random integers of `torch.Generator().manual_seed(0)` on a CPU."""

    def __init__(self) -> None:
        self._bits = np.random.MT19937()
        self._bits._legacy_seeding(0)  # type: ignore[attr-defined]  # the seeding of the original

    def integers(self, high: int, shape: tuple[int, ...]) -> Integers:
        """Return what `torch.randint(high, shape)` draws."""
        raw = np.asarray(self._bits.random_raw(math.prod(shape)), dtype=np.uint64)
        return (raw % np.uint64(high)).astype(np.int64).reshape(shape)

    def permutation(self, n: int) -> Integers:
        """Return what `torch.randperm(n)` draws."""
        order = np.arange(n)
        if n < 2:
            return order
        raw = np.asarray(self._bits.random_raw(n - 1), dtype=np.uint64)
        steps = (raw % np.arange(n, 1, -1, dtype=np.uint64)).astype(np.int64).tolist()
        for i, step in enumerate(steps):
            order[i], order[i + step] = order[i + step], order[i]
        return order


def null_scores(held_out: Array, reduce: Reduction, n: int) -> Array:
    """Return the scores of source batches of n, (CALIBRATIONS, RESAMPLES)."""
    n = min(n, LARGEST_BATCH)
    furthest = held_out[int(np.argmax(reduce(held_out)))]
    rows = np.concatenate([held_out, np.repeat(furthest[None], UNSEEN_SAMPLES, 0)])
    random = TorchRandom()
    if n <= SMALL:
        return _small_batches(rows, len(held_out), reduce, n, random)
    batches = _resampled_means(rows, n, RESAMPLES, random)
    centre = held_out.astype(np.float64).mean(0)
    moved = _resampled_means(held_out, len(held_out), CALIBRATIONS, random) - centre
    return np.stack([reduce((batches + offset).astype(held_out.dtype)) for offset in moved])


def threshold_from(scores: Array, rate: float) -> float:
    """Return the threshold at a rate of false alarms from `null_scores`."""
    # torch.quantile finds the rank in the precision of the scores.
    last = scores.dtype.type(scores.shape[1] - 1)
    rank = int(np.ceil(scores.dtype.type(1 - rate) * last))
    ends = np.sort(scores, 1)[:, rank]
    return float(np.quantile(ends, CONFIDENCE))


def p_value_from(scores: Array, score: float) -> float:
    """Return the probability of a score at least this high on the source."""
    above = (scores >= scores.dtype.type(score)).sum(1)
    return float(np.quantile((above + 1.0) / (scores.shape[1] + 1), CONFIDENCE))


def _small_batches(
    rows: Array, total: int, reduce: Reduction, n: int, random: TorchRandom
) -> Array:
    scores = []
    for _ in range(CALIBRATIONS):
        resample = np.concatenate([random.integers(total, (total,)), np.arange(total, len(rows))])
        index = resample[random.integers(len(resample), (RESAMPLES, n))]
        means: NDArray[Any] = np.zeros((RESAMPLES, rows.shape[1]), rows.dtype)
        for column in index.T:
            means += rows[column]
        scores.append(reduce(means / means.dtype.type(n)))
    return np.stack(scores)


def _resampled_means(features: Array, size: int, resamples: int, random: TorchRandom) -> Array:
    """Return the means of `size` rows drawn with replacement, (resamples, F), float64."""
    rows = features.astype(np.float64)
    most = max(1, CHUNK_NUMBERS // max(len(rows), size))
    means = []
    for start in range(0, resamples, most):
        count = min(most, resamples - start)
        index = random.integers(len(rows), (count, size)) + len(rows) * np.arange(count)[:, None]
        drawn = np.bincount(index.ravel(), minlength=count * len(rows)).reshape(count, len(rows))
        means.append(drawn.astype(np.float64) @ rows / size)
    return np.concatenate(means)
