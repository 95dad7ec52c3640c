"""Predict, score and judge with an exported model, without torch.

detector = OnnxDetector("model.onnx")
detector.predict(x)  # logits
detector.score(x)  # one score per sample
detector.verdict(x).sentence
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from unseen.checks import check_fraction, check_int, check_number, check_path
from unseen.deploy.calibration import SIGNAL, AccuracyNumbers, Calibration
from unseen.deploy.feeds import feeds_of
from unseen.deploy.reductions import Array, shift_to_mean
from unseen.deploy.session import check_graph, open_session
from unseen.deploy.thresholds import null_scores, p_value_from, threshold_from
from unseen.errors import UnseenError
from unseen.functional.accuracy_model import accuracy_with_interval
from unseen.functional.verdict import RATE, TOLERANCE, Outcome, Verdict, outcome

LEVEL = 0.9


@dataclass(frozen=True)
class Seen:
    """What one pass shows of samples. Of several passes, `OnnxDetector.join` makes one."""

    logits: Array  # (N, C) or (N, C, ...)
    scores: Array  # (N,)
    features: Array  # (N, F) of the detector
    signals: dict[str, Array]  # (N, F) by signal
    rows: Array | None = None  # (N, P, C) of the logits that optimal transport reads

    @property
    def n(self) -> int:
        return len(self.logits)


class DeployedEstimate(NamedTuple):
    """An estimated accuracy with its interval."""

    accuracy: float
    low: float
    high: float
    extrapolates: bool  # further from every synthetic shift than those are from each other
    n: int
    scores: dict[str, float]  # of the signals; higher is worse


class OnnxDetector:
    """A model that `unseen export` wrote, with its score, thresholds and accuracy estimator.

    Args:
        path: the .onnx file.
        rate: false-alarm rate of `alarm` and `verdict`.
        providers: of onnxruntime, such as ["CUDAExecutionProvider"]; by default the CPU.
        threads: of onnxruntime; by default its own choice.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        rate: float = RATE,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        threads: int | None = None,
    ) -> None:
        self.path = check_path("path", path)
        self.rate = check_fraction("rate", rate)
        self._session = open_session(self.path, providers, threads)
        self.calibration = Calibration.from_metadata(
            self._session.get_modelmeta().custom_metadata_map, str(self.path)
        )
        self._outputs = check_graph(self._session, self.calibration, self.path)
        self._thresholds: dict[tuple[int, float], float] = {}
        self._null: tuple[int, Array] | None = None  # scores of source batches of the last size

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self.calibration.classes

    def predict(self, x: Any) -> Array:
        """Return logits."""
        return self._run(x, ["logits"])[0]

    def score(self, x: Any) -> Array:
        """Return one score per sample, (N,); higher is further from the source."""
        return self._run(x, ["score"])[0]

    def predict_and_score(self, x: Any) -> tuple[Array, Array]:
        """Return logits and one score per sample from one pass."""
        logits, scores = self._run(x, ["logits", "score"])
        return logits, scores

    def observe(self, x: Any) -> Seen:
        """Pass samples through the graph; return everything that a verdict needs."""
        values = dict(zip(self._outputs, self._run(x, self._outputs), strict=True))
        signals = {n.removeprefix(SIGNAL): v for n, v in values.items() if n.startswith(SIGNAL)}
        own = (values["logits"], values["score"], values["features"])
        return self._matched(Seen(*own, signals, values.get("rows")))

    def join(self, parts: Sequence[Seen]) -> Seen:
        """Return all samples of several passes as samples of one domain."""
        if not parts:
            raise UnseenError("a verdict needs at least one sample, there is none")
        rows = [p.rows for p in parts if p.rows is not None]
        signals = {n: np.concatenate([p.signals[n] for p in parts]) for n in parts[0].signals}
        joined = Seen(
            np.concatenate([p.logits for p in parts]),
            np.concatenate([p.scores for p in parts]),
            np.concatenate([p.features for p in parts]),
            signals,
            np.concatenate(rows) if rows else None,
        )
        return self._matched(joined)

    def domain_score(self, x: Any) -> float:
        """Return one score for all of x, as samples of one domain."""
        return self.domain_score_of(self._run(x, ["features"])[0])

    def domain_score_of(self, features: Array) -> float:
        """Return the score of a domain from the features of its samples, (N, F)."""
        value = float(self.calibration.reduction(features.mean(0)))
        if not math.isfinite(value):
            raise UnseenError(f"the score of these samples is {value}: look for NaN in the inputs")
        return value

    def threshold(self, n: int, rate: float | None = None) -> float:
        """Return the score that fresh source batches of n exceed with at most that probability.

        It is computed from the held-out features in the file, for any n and rate.
        """
        rate = self.rate if rate is None else check_fraction("rate", rate)
        key = check_int("n", n, 1), rate
        if key not in self._thresholds:
            self._thresholds[key] = threshold_from(self._null_scores(n), rate)
        return self._thresholds[key]

    def p_value(self, score: float, n: int) -> float:
        """Return the probability that a source batch of n has at least this score."""
        return p_value_from(self._null_scores(check_int("n", n, 1)), score)

    def alarm(self, x: Any, rate: float | None = None) -> bool:
        """Return whether the samples are further from the source than chance explains."""
        features = self._run(x, ["features"])[0]
        return self.domain_score_of(features) > self.threshold(len(features), rate)

    def estimate_accuracy(self, x: Any, level: float = LEVEL) -> DeployedEstimate:
        """Estimate the accuracy on x, samples of one domain without labels."""
        return self.estimate_from(self.observe(x), level)

    def estimate_from(self, seen: Seen, level: float = LEVEL) -> DeployedEstimate:
        """Estimate the accuracy from an observation of the samples."""
        check_fraction("the level of an interval", level)
        accuracy = self._accuracy()
        scores = {}
        for name in accuracy.combined.names:
            rows = seen.signals[name].astype(np.float64)
            variance = rows.var(0) / max(1, len(rows) - 1)
            scores[name] = float(accuracy.reductions[name](rows.mean(0), variance))
        if bad := [name for name, value in scores.items() if not math.isfinite(value)]:
            raise UnseenError(
                f"the score {bad[0]} of these samples is {scores[bad[0]]}: look for NaN in the "
                "inputs"
            )
        numbers = (accuracy.combined, accuracy.null, accuracy.classes)
        return DeployedEstimate(
            *accuracy_with_interval(*numbers, scores, seen.n, level), seen.n, scores
        )

    def verdict(self, x: Any, tolerance: float = TOLERANCE, rate: float | None = None) -> Verdict:
        """Judge x, samples of one domain without labels: ok, shifted, failing or unknown."""
        return self.judge(self.observe(x), tolerance, rate)

    def judge(self, seen: Seen, tolerance: float = TOLERANCE, rate: float | None = None) -> Verdict:
        """Judge samples of one domain from an observation of them.

        Without an accuracy estimator, the score alone decides: ok or shifted.
        """
        check_number("tolerance", tolerance, 0)
        rate = self.rate if rate is None else check_fraction("rate", rate)
        score, threshold = self.domain_score_of(seen.features), self.threshold(seen.n, rate)
        p_value, shifted = self.p_value(score, seen.n), score > threshold
        accuracy = self.calibration.accuracy
        if accuracy is None:
            found: Outcome = "shifted" if shifted else "ok"
            unknown = (None, None, None, None)
            return Verdict(found, score, threshold, p_value, *unknown, seen.n, None, rate)
        estimate = self.estimate_from(seen)
        return Verdict(
            verdict=outcome(shifted, estimate, accuracy, tolerance, rate),
            score=score,
            threshold=threshold,
            p_value=p_value,
            predicted_accuracy=estimate.accuracy,
            interval=(estimate.low, estimate.high),
            source_accuracy=accuracy.source_accuracy,
            failing_p_value=accuracy.null.p_value(
                seen.n, estimate.accuracy - accuracy.source_accuracy
            ),
            n=seen.n,
            tolerance=tolerance,
            rate=rate,
        )

    def correctness(self, x: Any) -> Array:
        """Return the probability that each prediction is correct, (N,).

        Their mean is the estimated accuracy on x, samples of one domain.
        """
        self._accuracy()
        seen = self.observe(x)
        raw = 1 - seen.signals["correctness"][:, 0]
        return shift_to_mean(raw, self.estimate_from(seen).accuracy)

    def _accuracy(self) -> AccuracyNumbers:
        if self.calibration.accuracy is None:
            raise UnseenError(
                f"{self.path} was exported without an accuracy estimator: give held_out to "
                "unseen.fit or unseen.calibrate and export it again"
            )
        return self.calibration.accuracy

    def _matched(self, seen: Seen) -> Seen:
        """Return the observation with the signals of optimal transport."""
        accuracy = self.calibration.accuracy
        if accuracy is None or seen.rows is None:
            return seen
        matched = {name: t.features(seen.rows) for name, t in accuracy.transports.items()}
        return Seen(seen.logits, seen.scores, seen.features, {**seen.signals, **matched}, seen.rows)

    def _null_scores(self, n: int) -> Array:
        if self._null is None or self._null[0] != n:
            known = self.calibration
            self._null = n, null_scores(known.held_out, known.reduction, n)
        return self._null[1]

    def _run(self, x: Any, outputs: list[str]) -> list[Array]:
        import onnxruntime

        feeds = feeds_of(x, self.calibration.inputs, self.path)
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        try:
            return [np.asarray(v) for v in self._session.run(outputs, feeds, options)]
        except Exception as error:  # onnxruntime raises its own types
            raise UnseenError(f"{self.path} cannot run these inputs: {error}") from error
