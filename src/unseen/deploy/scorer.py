"""A trained model that can be asked, whatever computes its pass: predictions, scores, verdicts.

scorer = open_scorer("runs/a")  # or "model.onnx"
seen = scorer.observe(scorer.reader.batch(["a.png", "b.png"]))
scorer.judge(seen).sentence

A subclass writes `observe`; all the rest is computed from the calibration, in numpy. A domain of
any size is judged from `Sums`, which are made of its parts and merged:

sums = scorer.sums(seen)
scorer.judge(sums.merge(scorer.sums(more, start=len(seen.scores))))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from unseen.checks import check_fraction, check_int, check_number
from unseen.deploy.calibration import AccuracyNumbers, Calibration
from unseen.deploy.input_reader import InputReader
from unseen.deploy.reductions import Array, shift_to_mean
from unseen.deploy.seen import DeployedEstimate, LabelKind, Seen
from unseen.deploy.sums import Moment, Sums
from unseen.deploy.thresholds import null_scores, p_value_from, threshold_from
from unseen.errors import UnseenError
from unseen.functional.accuracy_model import accuracy_with_interval
from unseen.functional.verdict import RATE, TOLERANCE, Outcome, Verdict, outcome

LEVEL = 0.9
NULL_SIZES = 16  # batch sizes whose null distribution is kept; each takes a third of a megabyte


class Scorer(ABC):
    """Predicts, scores and judges samples of a trained model.

    Args:
        calibration: statistics of the source, thresholds and accuracy estimator.
        place: the file or folder, for errors.
        rate: false-alarm rate of `alarm` and `verdict`.
    """

    def __init__(self, calibration: Calibration, place: str, rate: float = RATE) -> None:
        self.calibration, self.place = calibration, place
        self.rate = check_fraction("rate", rate)
        self._thresholds: dict[tuple[int, float], float] = {}
        self._null: dict[int, Array] = {}  # scores of source batches of the last sizes

    @abstractmethod
    def observe(self, x: Any) -> Seen:
        """Pass samples through the model; return everything that a verdict needs.

        Args:
            x: an array (N, ...), a tuple of them, or a mapping by the names of the inputs.
        """

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self.calibration.classes

    @property
    def labels(self) -> LabelKind:
        """What is predicted: classes, several labels, numbers, or a map of classes."""
        kind: LabelKind = self.calibration.more.get("labels", "classes")
        return kind

    @property
    def estimates_accuracy(self) -> bool:
        """Whether there is an accuracy estimator: verdicts then predict accuracy."""
        return self.calibration.accuracy is not None

    @cached_property
    def reader(self) -> InputReader:
        """What turns files, bytes, texts, arrays and rows of tables into inputs."""
        recorded = self.calibration.more.get("preprocessing")
        inputs = self.calibration.inputs
        if len(inputs) != 1:  # several tensors are given as a mapping of arrays
            return InputReader.of(recorded, (), self.place)
        return InputReader.of(recorded, inputs[0].shape[1:], self.place, inputs[0].dtype)

    @cached_property
    def source_mean(self) -> Array:
        """Mean features of held-out source samples, (F,): tells models apart."""
        return np.asarray(self.calibration.held_out.astype(np.float64).mean(0))

    # ---- one domain at once

    def predict(self, x: Any) -> Array:
        """Return logits."""
        return self.observe(x).logits

    def score(self, x: Any) -> Array:
        """Return one score per sample, (N,); higher is further from the source."""
        return self.observe(x).scores

    def predict_and_score(self, x: Any) -> tuple[Array, Array]:
        """Return logits and one score per sample from one pass."""
        seen = self.observe(x)
        return seen.logits, seen.scores

    def domain_score(self, x: Any) -> float:
        """Return one score for all of x, as samples of one domain."""
        return self.domain_score_of(self.observe(x).features)

    def alarm(self, x: Any, rate: float | None = None) -> bool:
        """Return whether the samples are further from the source than chance explains."""
        features = self.observe(x).features
        return self.domain_score_of(features) > self.threshold(len(features), rate)

    def estimate_accuracy(self, x: Any, level: float = LEVEL) -> DeployedEstimate:
        """Estimate the accuracy on x, samples of one domain without labels."""
        return self.estimate_from(self.observe(x), level)

    def verdict(self, x: Any, tolerance: float = TOLERANCE, rate: float | None = None) -> Verdict:
        """Judge x, samples of one domain without labels: ok, shifted, failing or unknown."""
        return self.judge(self.observe(x), tolerance, rate)

    def correctness(self, x: Any) -> Array:
        """Return the probability that each prediction is correct, (N,).

        Their mean is the estimated accuracy on x, samples of one domain.
        """
        return self.correctness_from(self.observe(x))

    # ---- from what was observed

    def join(self, parts: Sequence[Seen]) -> Seen:
        """Return all samples of several passes as samples of one domain."""
        if not parts:
            raise UnseenError("a verdict needs at least one sample, there is none")
        rows = [p.rows for p in parts if p.rows is not None]
        signals = {n: np.concatenate([p.signals[n] for p in parts]) for n in parts[0].signals}
        return Seen(
            np.concatenate([p.logits for p in parts]),
            np.concatenate([p.scores for p in parts]),
            np.concatenate([p.features for p in parts]),
            signals,
            np.concatenate(rows) if rows else None,
        )

    def sums(self, seen: Seen, start: int | Array = 0) -> Sums:
        """Return what a verdict needs of these samples, to be merged with that of others.

        Args:
            start: number of the first sample, or the numbers of all; every sample of a domain has
                another one.
        """
        return Sums.of(seen, start, self.source_mean)

    def domain_score_of(self, features: Array) -> float:
        """Return the score of a domain from the features of its samples, (N, F)."""
        return self.score_of_mean(features.astype(np.float64).mean(0))

    def score_of_mean(self, mean: Array) -> float:
        """Return the score of a domain from the mean of its features, (F,)."""
        value = float(self.calibration.reduction(mean.astype(self.calibration.held_out.dtype)))
        if not math.isfinite(value):
            raise UnseenError(f"the score of these samples is {value}: look for NaN in the inputs")
        return value

    def threshold(self, n: int, rate: float | None = None) -> float:
        """Return the score that fresh source batches of n exceed with at most that probability.

        It is computed from the held-out features of the source, for any n and rate.
        """
        rate = self.rate if rate is None else check_fraction("rate", rate)
        key = check_int("n", n, 1), rate
        if key not in self._thresholds:
            self._thresholds[key] = threshold_from(self._null_scores(n), rate)
        return self._thresholds[key]

    def p_value(self, score: float, n: int) -> float:
        """Return the probability that a source batch of n has at least this score."""
        return p_value_from(self._null_scores(check_int("n", n, 1)), score)

    def estimate_from(self, seen: Seen | Sums, level: float = LEVEL) -> DeployedEstimate:
        """Estimate the accuracy from an observation of the samples, or from sums over them."""
        if isinstance(seen, Seen):
            moments, rows = {n: Moment.of(v) for n, v in seen.signals.items()}, seen.rows
        else:
            moments, rows = dict(seen.moments), seen.sample.rows
        transports = self._accuracy().transports
        assert rows is not None
        for name, transport in transports.items():
            moments[name] = Moment.of(transport.features(rows))
        return self.estimate_moments(moments, seen.n, level)

    def estimate_moments(
        self, moments: Mapping[str, Moment], n: int, level: float = LEVEL
    ) -> DeployedEstimate:
        """Estimate the accuracy on n samples from the moments of every signal."""
        check_fraction("the level of an interval", level)
        accuracy = self._accuracy()
        scores = {}
        for name in accuracy.combined.names:
            found = moments[name]
            variance = found.variance / max(1, found.n - 1)
            scores[name] = float(accuracy.reductions[name](found.mean, variance))
        if bad := [name for name, value in scores.items() if not math.isfinite(value)]:
            raise UnseenError(
                f"the score {bad[0]} of these samples is {scores[bad[0]]}: look for NaN in the "
                "inputs"
            )
        numbers = (accuracy.combined, accuracy.null, accuracy.classes)
        return DeployedEstimate(*accuracy_with_interval(*numbers, scores, n, level), n, scores)

    def judge(
        self, seen: Seen | Sums, tolerance: float = TOLERANCE, rate: float | None = None
    ) -> Verdict:
        """Judge samples of one domain from an observation of them, or from sums over them.

        Without an accuracy estimator, the score alone decides: ok or shifted.
        """
        check_number("tolerance", tolerance, 0)
        if isinstance(seen, Sums) and not seen.is_of(self.source_mean):
            raise UnseenError(
                f"these sums were not made by {self.place}: judge them by their model"
            )
        rate = self.rate if rate is None else check_fraction("rate", rate)
        n = seen.n
        score, threshold = self.score_of_mean(seen.mean_features), self.threshold(n, rate)
        p_value, shifted = self.p_value(score, n), score > threshold
        accuracy = self.calibration.accuracy
        if accuracy is None:
            found: Outcome = "shifted" if shifted else "ok"
            unknown = (None, None, None, None)
            return Verdict(found, score, threshold, p_value, *unknown, n, None, rate)
        estimate = self.estimate_from(seen)
        return Verdict(
            verdict=outcome(shifted, estimate, accuracy, tolerance, rate),
            score=score,
            threshold=threshold,
            p_value=p_value,
            predicted_accuracy=estimate.accuracy,
            interval=(estimate.low, estimate.high),
            source_accuracy=accuracy.source_accuracy,
            failing_p_value=accuracy.null.p_value(n, estimate.accuracy - accuracy.source_accuracy),
            n=n,
            tolerance=tolerance,
            rate=rate,
        )

    def correctness_from(self, seen: Seen) -> Array:
        """Return the probabilities of `correctness` from an observation of the samples."""
        self._accuracy()
        raw = seen.raw_correctness
        assert raw is not None
        return shift_to_mean(raw, self.estimate_from(seen).accuracy)

    def _accuracy(self) -> AccuracyNumbers:
        if self.calibration.accuracy is None:
            raise UnseenError(
                f"{self.place} has no accuracy estimator: give held_out to unseen.fit or "
                "unseen.calibrate, and export it again if it is an exported model"
            )
        return self.calibration.accuracy

    def _null_scores(self, n: int) -> Array:
        found = self._null.pop(n, None)
        if found is None:
            found = null_scores(self.calibration.held_out, self.calibration.reduction, n)
        self._null[n] = found  # at the end: the size that was used last
        if len(self._null) > NULL_SIZES:
            del self._null[next(iter(self._null))]
        return found
