"""Sums over the samples of one domain: what a verdict needs, in constant memory.

Sums of parts merge to those of the whole, in any grouping: on one machine, after a restart, or on
many machines. They are equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unseen.deploy.reductions import Array, log_odds, shift_of
from unseen.deploy.seen import Seen
from unseen.errors import UnseenError

SAMPLE = 4096  # samples whose logits are kept, for the signals of optimal transport
SAMPLE_NUMBERS = 8_000_000  # in their logits: label maps have many rows
BINS = 8192  # of the log odds of correctness
ODDS = 21.0  # largest log odds that a probability is clipped to


@dataclass(frozen=True)
class Moment:
    """Count, mean and variance of features."""

    n: int
    mean: Array  # (F,) float64
    variance: Array  # (F,) of single samples

    @classmethod
    def of(cls, features: Array) -> Moment:
        rows = features.astype(np.float64)
        return cls(len(rows), rows.mean(0), rows.var(0))

    def merge(self, other: Moment) -> Moment:
        """Return the moments of both sets of samples."""
        n = self.n + other.n
        share = other.n / n
        step = other.mean - self.mean
        within = (1 - share) * self.variance + share * other.variance
        return Moment(n, self.mean + share * step, within + share * (1 - share) * step**2)


@dataclass(frozen=True)
class RowSample:
    """A random sample of rows of logits: those whose numbers have the smallest hashes."""

    numbers: Array  # (K,) of the samples, ascending, uint64
    rows: Array  # (K, P, C)

    @classmethod
    def of(cls, rows: Array, start: int | Array) -> RowSample:
        numbers = np.arange(start, start + len(rows)) if isinstance(start, int) else start
        return cls(numbers.astype(np.uint64), rows).limited()

    def merge(self, other: RowSample) -> RowSample:
        """Return a sample of both sets."""
        numbers = np.concatenate([self.numbers, other.numbers])
        order = np.argsort(numbers, kind="stable")
        return RowSample(numbers[order], np.concatenate([self.rows, other.rows])[order]).limited()

    def limited(self, most: int = SAMPLE) -> RowSample:
        """Return a random part of the sample, of at most this many."""
        most = max(1, min(most, SAMPLE, SAMPLE_NUMBERS // max(1, self.rows[0].size)))
        if len(self.numbers) <= most:
            return self
        kept = np.sort(np.argsort(_hashes(self.numbers), kind="stable")[:most])
        return RowSample(self.numbers[kept], self.rows[kept])


@dataclass(frozen=True)
class OddsHistogram:
    """Log odds of correctness in narrow bins: finds the shift that gives them a mean."""

    counts: Array  # (BINS,)
    totals: Array  # (BINS,) sums of the log odds

    @classmethod
    def of(cls, probabilities: Array) -> OddsHistogram:
        odds = log_odds(probabilities)
        bins = np.clip((odds + ODDS) * (BINS / (2 * ODDS)), 0, BINS - 1).astype(np.int64)
        counts = np.bincount(bins, minlength=BINS).astype(np.float64)
        return cls(counts, np.bincount(bins, odds, minlength=BINS))

    def merge(self, other: OddsHistogram) -> OddsHistogram:
        return OddsHistogram(self.counts + other.counts, self.totals + other.totals)

    def shift_to(self, mean: float) -> float:
        """Return what to add to the log odds so that the probabilities have the mean."""
        filled = self.counts > 0
        odds, weights = self.totals[filled] / self.counts[filled], self.counts[filled]
        return shift_of(odds, weights, mean)


@dataclass(frozen=True)
class Sums:
    """Sums over samples of one domain; `Scorer.sums` makes them, `Scorer.judge` reads them."""

    n: int
    features: Array  # (F,) sum of the detector's features, float64
    moments: dict[str, Moment]  # of the signals that are means over samples
    sample: RowSample  # for the signals that are not
    odds: OddsHistogram | None = None  # of the raw correctness
    source: Array | None = None  # (F,) mean features of the model's source: tells models apart

    @classmethod
    def of(cls, seen: Seen, start: int | Array = 0, source: Array | None = None) -> Sums:
        """Sum up what one pass has shown."""
        if not seen.n:
            raise UnseenError("a verdict needs at least one sample, there is none")
        moments = {n: Moment.of(v) for n, v in seen.signals.items()}
        rows = np.zeros((seen.n, 0, 0), np.float32) if seen.rows is None else seen.rows
        raw = seen.raw_correctness
        return cls(
            seen.n,
            seen.features.astype(np.float64).sum(0),
            moments,
            RowSample.of(rows, start),
            None if raw is None else OddsHistogram.of(raw),
            source,
        )

    @property
    def mean_features(self) -> Array:
        return np.asarray(self.features / self.n)

    def merge(self, other: Sums) -> Sums:
        """Return the sums of both sets of samples."""
        same = self.is_of(other.source) and set(self.moments) == set(other.moments)
        if not same or self.features.shape != other.features.shape:
            raise UnseenError("sums to merge must come from the same model")
        odds = None
        if self.odds is not None and other.odds is not None:
            odds = self.odds.merge(other.odds)
        return Sums(
            self.n + other.n,
            self.features + other.features,
            {name: m.merge(other.moments[name]) for name, m in self.moments.items()},
            self.sample.merge(other.sample),
            odds,
            self.source,
        )

    def is_of(self, source: Array | None) -> bool:
        """Return whether the sums may come from a model with this mean of its source's features.

        Sums of older versions do not say where they come from.
        """
        return self.source is None or source is None or same_source(self.source, source)

    def followed_by(self, other: Sums) -> Sums:
        """Return the sums of both sets, each of which numbers its samples from 0."""
        share = min(len(s.sample.numbers) / s.n for s in (self, other))
        first, second = (s.sample.limited(round(share * s.n)) for s in (self, other))
        moved = RowSample(second.numbers + np.uint64(self.n), second.rows)
        return replace(self, sample=first).merge(replace(other, sample=moved))

    def to_arrays(self) -> dict[str, Array]:
        """Return the sums as arrays by name, such as `np.savez` takes."""
        arrays = {
            "n": np.array(self.n),
            "features": self.features,
            "sample/numbers": self.sample.numbers,
            "sample/rows": self.sample.rows,
        }
        for name, m in self.moments.items():
            count = np.full_like(m.mean, m.n)
            arrays[f"moments/{name}"] = np.stack([m.mean, m.variance, count])
        if self.source is not None:
            arrays["source"] = self.source
        if self.odds is not None:
            arrays["odds"] = np.stack([self.odds.counts, self.odds.totals])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Sums:
        """Restore what `to_arrays` returned."""
        moments = {
            name.removeprefix("moments/"): Moment(int(a[2, 0]), a[0], a[1])
            for name, a in arrays.items()
            if name.startswith("moments/")
        }
        return cls(
            int(arrays["n"]),
            np.asarray(arrays["features"]),
            moments,
            RowSample(np.asarray(arrays["sample/numbers"]), np.asarray(arrays["sample/rows"])),
            OddsHistogram(*arrays["odds"]) if "odds" in arrays else None,
            np.asarray(arrays["source"]) if "source" in arrays else None,
        )


def same_source(a: Array, b: Array) -> bool:
    """Return whether two means of source features are of one model: a run, or its export."""
    return a.shape == b.shape and np.allclose(a, b)


def _hashes(numbers: Array) -> Array:
    """Return splitmix64 of each number: a random order that everybody agrees on."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
