"""How many predictions are right on data without labels: from the domain score, from confidence, from ATC.

Ours: held-out source data under generic synthetic shifts gives pairs of score and accuracy; a curve that only falls is laid
through them, and how far it is off for a kind of shift it was not laid through gives the interval. No target is looked at.
Average confidence stands beside it, with the range of its own errors under those shifts, and ATC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.api import Batch, Method, inputs
from unseen.checks import check_fraction, check_int
from unseen.detection.source_statistics import (
    bootstrap_interval,
    entropy,
    lack_of_confidence,
    resampled_scores,
)
from unseen.detection.synthetic_shifts import Shift, Shifts, shifts_for, with_blends
from unseen.errors import UnseenError
from unseen.files import read_json, write_json
from unseen.training.batches import EVALUATION_BATCH, EVALUATION_NUMBERS

Floats = NDArray[np.float64]
Scorer = Callable[[Tensor], Tensor]
FORMAT = 2  # raise it with every change of what a saved table means, of the shifts too
SAMPLES = 300  # held-out samples under each shift: an accuracy is then known to about 3 points
BLENDS = 30  # of several kinds of shift
NEAR = 40  # errors at a similar score that make the interval: the curve is surer in some places than in others
FILE = "accuracy.json"  # in a run's folder
LEVEL = 0.9
RESAMPLES = 400


# ------------------------------------------------------------------------------------------------- pure functions


def average_confidence(logits: Tensor) -> float:
    """Mean highest class probability: the accuracy of a model that is calibrated on this data."""
    return float(logits.softmax(1).amax(1).double().mean())


def certainty(logits: Tensor) -> Tensor:
    """Negative entropy of the class probabilities, (N, C, ...) -> (N, ...)."""
    return -entropy(logits)


def atc_threshold(certainties: Tensor, right: Tensor) -> float:
    """The certainty that as large a share of the source reaches as is right (Garg et al., ICLR 2022)."""
    ordered = certainties.flatten().double().sort().values
    wrong = int(right.numel() - right.sum())
    return float(ordered[min(wrong, len(ordered) - 1)])


def atc(certainties: Tensor, threshold: float) -> float:
    """Average thresholded confidence: the share of predictions at least as certain as the threshold."""
    return float((certainties.double() >= threshold).double().mean())


def falling_curve(scores: Floats, accuracies: Floats, at: Floats) -> Floats:
    """The closest curve that never rises with the score, read at some scores; flat beyond the ends."""
    from sklearn.isotonic import (
        IsotonicRegression,  # scikit-learn takes a second to import: only where it is needed
    )

    fitted = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(scores, accuracies)
    return np.asarray(fitted.predict(at), dtype=np.float64)


def left_out_errors(
    kinds: Sequence[Sequence[str]], scores: Floats, accuracies: Floats
) -> tuple[Floats, Floats]:
    """Scores, and real minus predicted accuracy there from a curve that has seen no point with one of its kinds of shift."""
    at, errors = [], []
    for kind in sorted({kind for those in kinds for kind in those}):
        out = np.array([kind in those for those in kinds])
        at.append(scores[out])
        errors.append(accuracies[out] - falling_curve(scores[~out], accuracies[~out], scores[out]))
    return np.concatenate(at), np.concatenate(errors)


def error_range(errors: Floats, level: float) -> tuple[float, float]:
    """The range that holds a new error with at least that chance if it is like these; with few of them, all of them."""
    ordered, m = np.sort(errors), len(errors)
    outside = math.floor(
        (m + 1) * (1 - level) / 2 + 1e-9
    )  # 40 * 0.05 is 2, whatever floating point makes of it
    first = max(0, outside - 1)
    return float(ordered[first]), float(ordered[m - 1 - first])


def nearest(values: Floats, value: float) -> NDArray[np.int64]:
    """Places of the NEAR values that are closest."""
    return np.argsort(np.abs(values - value), kind="stable")[:NEAR]


# ---------------------------------------------------------------------------------------------------- estimates


class Expected(NamedTuple):
    """An accuracy, and the interval it is expected in."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool  # beyond every synthetic shift: the accuracy may be as low as chance


class Estimate(NamedTuple):
    """What to expect on data without labels from the domain score, and what two baselines expect."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool
    average_confidence: Expected
    atc: float
    score: float  # without what chance adds to a small sample's
    n: int


@dataclass(frozen=True)
class Point:
    """Held-out source data under one shift."""

    kinds: tuple[str, ...]  # none, one, or those blended
    score: float
    doubt: float
    accuracy: float


@dataclass
class AccuracyEstimator:
    """Fit it once with held-out source data, keep it as a JSON file, ask it about data without labels."""

    score_name: str
    score_at: str
    classes: int
    certainty_threshold: float
    samples: int
    points: list[Point] = field(repr=False)

    @classmethod
    def fit(
        cls,
        net: Method,
        held_out: Iterable[Any],
        *,
        shifts: Shifts | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
    ) -> AccuracyEstimator:
        """Score and mark held-out source batches (x, y) under synthetic shifts: for images corruptions, for other inputs noise
        and loss of features, or `shifts` of your own, {kind: [function(x, generator) -> x, ...]}, of at least three kinds."""
        x, y = _gathered(held_out, check_int("samples", samples, 1), seed)
        kinds = shifts_for(x, label_maps=y.dim() > 1) if shifts is None else shifts
        if len(kinds) < 3:
            raise UnseenError(
                f"an accuracy is estimated from at least 3 kinds of shifts, not {len(kinds)}"
            )
        clean = look(net, x, y)
        points = [_point(net, (), clean)]
        for blended, shift in with_blends(kinds, BLENDS, seed):
            points.append(_point(net, blended, look(net, _shifted(shift, x, blended, seed), y)))
        return cls(
            net.score_name,
            net.score_at,
            clean.classes,
            atc_threshold(clean.certainties, clean.right),
            len(y),
            points,
        )

    def fits(self, net: Method) -> bool:
        """Whether the method's score is the one that this was fitted with."""
        return (self.score_name, self.score_at) == (net.score_name, net.score_at)

    def estimate(self, net: Method, x: Any, level: float = LEVEL) -> Estimate:
        """The accuracy on x, samples of one domain without labels."""
        return self.judge(net, look(net, inputs(x)), level)

    def judge(self, net: Method, seen: Looked, level: float = LEVEL) -> Estimate:
        """The same from what was seen of the samples."""
        if not self.fits(net):
            fitted, now = (
                f"{self.score_name} at the {self.score_at}",
                f"{net.score_name} at the {net.score_at}",
            )
            raise UnseenError(
                f"this estimator was fitted with the score {fitted}, the method's is {now}: fit it again"
            )
        check_fraction("the level of an interval", level)
        score, plain = fair_score(seen.features, net.score), float(net.score(seen.features.mean(0)))
        if not math.isfinite(score):
            raise UnseenError(
                f"the score of these samples is {score}: look for NaN in them or in the model's weights"
            )
        low, high = bootstrap_interval(seen.features, net.score, level, RESAMPLES)
        from_score = self.at_score(score, low + score - plain, high + score - plain, level)
        ends_of_doubt = bootstrap_interval(
            seen.doubt, partial(torch.mean, dim=-1), level, RESAMPLES
        )
        from_doubt = self.at_doubt(float(seen.doubt.mean()), *ends_of_doubt, level)
        return Estimate(
            *from_score,
            from_doubt,
            atc(seen.certainties, self.certainty_threshold),
            score,
            len(seen.features),
        )

    def at_score(self, score: float, low: float, high: float, level: float = LEVEL) -> Expected:
        """The accuracy where the curve has that score, known to lie between low and high."""
        scores, accuracies, errors_at, errors = self._curve
        there, of_high, of_low = falling_curve(
            scores, accuracies, np.array([score, high, low])
        ).tolist()
        return self._around(
            there,
            of_high,
            of_low,
            errors[nearest(errors_at, score)],
            level,
            bool(score > scores.max()),
        )

    def at_doubt(self, doubt: float, low: float, high: float, level: float = LEVEL) -> Expected:
        """Average confidence, 1 - doubt, with the range of its errors under shifts of a similar doubt."""
        doubts = np.array([p.doubt for p in self.points], dtype=np.float64)
        errors = np.array([p.accuracy for p in self.points], dtype=np.float64) - (1 - doubts)
        return self._around(
            1 - doubt,
            1 - high,
            1 - low,
            errors[nearest(doubts, doubt)],
            level,
            bool(doubt > doubts.max()),
        )

    def _around(
        self, there: float, worse: float, better: float, errors: Floats, level: float, beyond: bool
    ) -> Expected:
        below, above = error_range(errors, level)
        low, high = min(there, worse + below), max(there, better + above)
        return Expected(
            there, max(0.0, min(low, 1 / self.classes) if beyond else low), min(1.0, high), beyond
        )

    @cached_property
    def _curve(self) -> tuple[Floats, Floats, Floats, Floats]:
        scores = np.array([p.score for p in self.points], dtype=np.float64)
        accuracies = np.array([p.accuracy for p in self.points], dtype=np.float64)
        return (
            scores,
            accuracies,
            *left_out_errors([p.kinds for p in self.points], scores, accuracies),
        )

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file."""
        write_json(Path(path), {"format": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: str | Path) -> AccuracyEstimator:
        """Read what `save` wrote."""
        saved = read_json(Path(path))
        if saved.pop("format", None) != FORMAT:
            raise UnseenError(f"{path} is not an accuracy estimator of this version: fit it again")
        try:
            points = [
                Point(
                    tuple(map(str, p["kinds"])),
                    float(p["score"]),
                    float(p["doubt"]),
                    float(p["accuracy"]),
                )
                for p in saved["points"]
            ]
            numbers = (
                int(saved["classes"]),
                float(saved["certainty_threshold"]),
                int(saved["samples"]),
            )
            made = cls(str(saved["score_name"]), str(saved["score_at"]), *numbers, points)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UnseenError(
                f"{path} is not an accuracy estimator: {type(error).__name__}: {error}; fit it again"
            ) from error
        sound = all(
            math.isfinite(p.score) and 0 <= p.doubt <= 1 and 0 <= p.accuracy <= 1 for p in points
        )
        sound = (
            sound
            and not math.isnan(made.certainty_threshold)
            and len({p.kinds for p in points}) > 3
        )
        if len({kind for p in points for kind in p.kinds}) < 3 or not sound or made.classes < 1:
            raise UnseenError(
                f"{path}: points must be finite, shares in 0..1, and of at least 3 kinds of shifts; fit it again"
            )
        return made


def estimate_accuracy(
    net: Method, x: Any, estimator: AccuracyEstimator, level: float = LEVEL
) -> Estimate:
    """The accuracy to expect on x, samples of one domain without labels, with its interval."""
    return estimator.estimate(net, x, level)


def fair_score(features: Tensor, score: Scorer) -> float:
    """The score without what chance adds to it: one made of absolute deviations is larger for a smaller sample."""
    return 2 * float(score(features.mean(0))) - float(
        resampled_scores(features, score, RESAMPLES).mean()
    )


def _point(net: Method, kinds: tuple[str, ...], seen: Looked) -> Point:
    point = Point(
        kinds,
        fair_score(seen.features, net.score),
        float(seen.doubt.mean()),
        float(seen.right.double().mean()),
    )
    if not (math.isfinite(point.score) and math.isfinite(point.doubt)):
        shown = " + ".join(kinds) or "no shift"
        raise UnseenError(
            f"the score under {shown} is {point.score}: look for NaN in the held-out data or the model's weights"
        )
    return point


# -------------------------------------------------------------------------------------------------- looking at data


class Looked(NamedTuple):
    """What an estimate is made of."""

    features: Tensor  # (N, F)
    doubt: Tensor  # (N, 1)
    certainties: Tensor  # (M,): of samples, or of their pixels
    right: Tensor  # (M,) bool; empty without labels
    classes: int


@torch.no_grad()
def look(net: Method, x: tuple[Tensor, ...], y: Tensor | None = None) -> Looked:
    """Pass samples of one domain through the model, in batches that fit into memory."""
    if not isinstance(net, Method):
        raise UnseenError(
            f"a score needs a method around the model, not {type(net).__name__}: unseen.ERM(model) is the plainest"
        )
    if len(x[0]) == 0:
        raise UnseenError("an accuracy is estimated from at least one sample, x is empty")
    size = max(1, min(EVALUATION_BATCH, EVALUATION_NUMBERS // max(1, sum(t[0].numel() for t in x))))
    features, doubts, certainties, right = [], [], [], []
    for start in range(0, len(x[0]), size):
        logits, described = (
            t.cpu() for t in net.predict_with_features(tuple(t[start : start + size] for t in x))
        )
        features.append(described)
        doubts.append(lack_of_confidence(logits))
        counted = torch.ones_like(logits[:, 0], dtype=torch.bool)
        if y is not None:
            labels = y[start : start + size].cpu()
            counted = labels != net.ignore_label
            right.append((logits.argmax(1) == labels)[counted])
        certainties.append(certainty(logits)[counted].double())
    marks = torch.cat(right) if right else torch.empty(0, dtype=torch.bool)
    if y is not None and marks.numel() == 0:
        raise UnseenError(
            f"no label of these samples counts: all are {net.ignore_label}, the one to ignore"
        )
    return Looked(
        torch.cat(features), torch.cat(doubts), torch.cat(certainties), marks, logits.shape[1]
    )


def _shifted(
    shift: Shift, x: tuple[Tensor, ...], kinds: tuple[str, ...], seed: int
) -> tuple[Tensor, ...]:
    made = inputs(shift(x, torch.Generator().manual_seed(seed)))
    if [t.shape for t in made] != [t.shape for t in x]:
        raise UnseenError(f"the shift {' + '.join(kinds)} must keep the shapes of its inputs")
    return made


def _gathered(
    held_out: Iterable[Any], samples: int, seed: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """A random part of the held-out data: it may be sorted by class."""
    batches = [Batch.of(pair) for pair in held_out]
    if not batches or not sum(len(b.y) for b in batches):
        raise UnseenError(
            "held_out is empty: give batches (x, y) of source data that was not trained on"
        )
    x = tuple(torch.cat(parts).cpu() for parts in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches]).cpu()
    chosen = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:samples]
    return tuple(t[chosen] for t in x), y[chosen]
