"""How often verdicts are right: on fresh source data, on harmless shifts and on costly ones.

Every set of samples is judged in random batches. Sets are the source's test data, the unseen
domains, blends of both, and weak shifts of the source. Beside the verdict stand three detectors
that only test for a shift: the alarm, maximum softmax probability, and Kolmogorov-Smirnov tests on
the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.api import Method, Task
from unseen.checks import check_fraction, check_int
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.detector import Detector
from unseen.detection.max_softmax import MaxSoftmax
from unseen.detection.one_pass import Observation
from unseen.detection.synthetic_shifts import (
    Shift,
    TensorShift,
    _shift_images,
    _shift_tensors,
    add_noise,
    add_relative_noise,
    darken,
    drop_entries,
    reduce_contrast,
    rescale,
    translate,
)
from unseen.detection.verdict import RATE, TOLERANCE, outcome
from unseen.errors import UnseenError
from unseen.experiments.run_estimator import estimator_of
from unseen.functional.pooling import pool
from unseen.nn.hooks import captured
from unseen.nn.inputs import Inputs
from unseen.nn.places import channel_axis
from unseen.training.batches import load_split, random_part
from unseen.training.run import Run

SIZES = (64, 256)
BATCHES = 40  # judged of each set and size
SOURCE_BATCHES = 400
SAMPLES = 1000  # of each set
BLENDS = (0.25, 0.5)
MOST_BLENDED = 20  # targets: a task with more has weak ones of its own
HARMLESS, COSTLY = 0.01, 0.10  # loss of accuracy
COMPONENTS = 32  # principal components of the embedding that are tested
DETECTORS = ("failing", "alarm", "max_softmax", "ks_embedding")


class EmbeddingReader(Detector):
    """The embedding itself, for the usual tests of drift."""

    name = "embedding"
    summary = "the embedding, averaged over space"

    def __init__(self, net: Any) -> None:
        super().__init__(net)
        if net.embedding is None:
            raise UnseenError("tests on the embedding need a method with a named embedding")
        self.axis = channel_axis(net.model, net.embedding)

    @contextmanager
    def watching(self):  # type: ignore[no-untyped-def]
        with captured(self.net.model, (self.net.embedding,)) as outputs:  # type: ignore[arg-type]
            yield outputs

    def features_of(self, logits: Tensor, watched: dict[str, Tensor]) -> Tensor:
        assert self.net.embedding is not None
        return pool(watched[self.net.embedding], self.axis)


@dataclass
class KolmogorovSmirnov:
    """Tests every principal component of the embedding, at a rate divided by their number."""

    components: Tensor  # (F, K)
    reference: Tensor  # (N, K), sorted

    @classmethod
    def fit(cls, embedding: Tensor) -> KolmogorovSmirnov:
        rows = embedding.double()
        components = torch.linalg.svd(rows - rows.mean(0), full_matrices=False).Vh.T
        kept = components[:, : min(COMPONENTS, rows.shape[1])]
        return cls(kept, (rows @ kept).sort(0).values)

    def alarm(self, embedding: Tensor, rate: float) -> bool:
        """Return whether one component differs more than chance explains (asymptotic test)."""
        batch = (embedding.double() @ self.components).sort(0).values
        n, total = len(batch), len(self.reference)
        statistic = max(map(float, _distances(self.reference, batch)))
        limit = math.sqrt(-math.log(rate / self.components.shape[1] / 2) / 2)
        return statistic > limit * math.sqrt((n + total) / (n * total))


def _distances(reference: Tensor, batch: Tensor) -> Tensor:
    """Return the largest distance of the distribution functions of each column, (K,)."""
    both = torch.cat([reference, batch]).T.contiguous()
    cdfs = [
        torch.searchsorted(t.T.contiguous(), both, right=True).double() / len(t)
        for t in (reference, batch)
    ]
    return (cdfs[0] - cdfs[1]).abs().amax(1)


@dataclass
class Judged:
    """A set of samples, and how often each detector fires on its batches."""

    name: str
    accuracy: float
    loss: float  # of accuracy against the source
    rates: dict[str, dict[str, float]]  # by size and detector
    verdicts: dict[str, dict[str, float]]  # by size and verdict

    @property
    def group(self) -> str:
        if self.name == "source":
            return "source"
        if abs(self.loss) <= HARMLESS:
            return "harmless"
        return "costly" if self.loss >= COSTLY else "between"


def weak_shifts(x: tuple[Tensor, ...]) -> dict[str, Shift]:
    """Return shifts that often cost little: of images, of counts, or of other numbers."""
    if len(x) == 1 and x[0].dim() == 4:
        pixel = 1 / min(x[0].shape[2:])
        table: dict[str, tuple[TensorShift, float]] = {
            "noise 0.02": (add_noise, 0.02),
            "noise 0.05": (add_noise, 0.05),
            "10 % darker": (darken, 0.9),
            "20 % darker": (darken, 0.8),
            "10 % less contrast": (reduce_contrast, 0.9),
            "moved one pixel": (translate, pixel),
        }
        return {name: partial(_shift_images, f, s) for name, (f, s) in table.items()}
    table = {
        "2 % dropped": (drop_entries, 0.02),
        "5 % dropped": (drop_entries, 0.05),
        "10 % dropped": (drop_entries, 0.1),
        "5 % larger": (rescale, 1.05),
        "noise of 0.05 std": (add_relative_noise, 0.05),
    }
    return {name: partial(_shift_tensors, f, s) for name, (f, s) in table.items()}


def judge_run(
    run: Run,
    task: Task,
    *,
    tolerance: float = TOLERANCE,
    rate: float = RATE,
    samples: int = SAMPLES,
    device: str = "auto",
) -> dict[str, Any]:
    """Judge batches of every set of samples with a run's verdict and the other detectors."""
    check_fraction("rate", rate)
    check_int("samples", samples, 1)
    net = run.load(task, device)
    estimator = estimator_of(run, task, net)
    judge = _Judge(net, estimator, task, tolerance, rate, samples)
    sets = [judge.judge("source", judge.clean, SOURCE_BATCHES)]
    for domain in task.targets:
        seen = judge.observe(domain.name)
        sets.append(judge.judge(domain.name, seen, BATCHES))
        for share in BLENDS if len(task.targets) <= MOST_BLENDED else ():
            blend = judge.blend(seen, share)
            sets.append(judge.judge(f"{share:.0%} {domain.name}", blend, BATCHES))
    for name, shift in weak_shifts(judge.clean_x).items():
        x = shift(judge.clean_x, torch.Generator().manual_seed(0))
        sets.append(judge.judge(name, judge.look(x, judge.clean_y), BATCHES))
    return {
        "run": str(run.folder),
        **{k: run.config[k] for k in ("task", "method", "seed")},
        "variant": task.variant,
        "rate": rate,
        "tolerance": tolerance,
        "source_accuracy": estimator.source_accuracy,
        "sets": [vars(s) | {"group": s.group} for s in sets],
        "groups": summarize_groups(sets),
        "per_sample": {s: judge.per_sample[s] for s in judge.per_sample},
    }


def summarize_groups(sets: Sequence[Judged]) -> dict[str, Any]:
    """Return the mean rates of each group of sets."""
    groups: dict[str, Any] = {}
    for group in ("source", "harmless", "between", "costly"):
        chosen = [s for s in sets if s.group == group]
        if chosen:
            groups[group] = {
                "sets": len(chosen),
                "rates": {
                    str(n): {
                        d: math.fsum(s.rates[str(n)][d] for s in chosen) / len(chosen)
                        for d in DETECTORS
                    }
                    for n in SIZES
                },
            }
    return groups


class _Judge:
    def __init__(
        self,
        net: Method,
        estimator: AccuracyEstimator,
        task: Task,
        tolerance: float,
        rate: float,
        samples: int,
    ) -> None:
        self.samples = samples
        self.net, self.estimator, self.task = net, estimator, task
        self.tolerance, self.rate = tolerance, rate
        self.generator = torch.Generator().manual_seed(0)
        self.reader = EmbeddingReader(net)
        self.per_sample: dict[str, dict[str, float]] = {}
        held_out = random_part(load_split(task.source, "val"), 2 * SAMPLES)
        self.msp = MaxSoftmax(net).calibrate(held_out, held_out)
        embedding = torch.cat([self.reader.look(b.x).features.cpu() for b in held_out])
        self.ks = KolmogorovSmirnov.fit(embedding)
        self.clean_x, self.clean_y = self._samples(task.source.name)
        self.clean = self.look(self.clean_x, self.clean_y)

    def _samples(self, domain: str) -> tuple[tuple[Tensor, ...], Tensor]:
        batches = random_part(load_split(self.task.domain(domain), "test"), self.samples)
        parts = zip(*(b.x for b in batches), strict=True)
        x = Inputs.like(batches[0].x, map(torch.cat, parts))
        return x, torch.cat([b.y for b in batches])

    def observe(self, domain: str) -> Observation:
        return self.look(*self._samples(domain))

    def look(self, x: tuple[Tensor, ...], y: Tensor) -> Observation:
        one_pass = self.estimator.one_pass
        seen = one_pass.observe(x, y, self.net.ignore_label, own=self.net.detector)
        embedding = one_pass.observe(x, own=self.reader).own
        assert embedding is not None
        seen.features["embedding"] = embedding
        return seen

    def blend(self, seen: Observation, share: float) -> Observation:
        n = min(seen.n, self.clean.n)
        parts = [self.clean.take(torch.arange(n)), seen.take(torch.arange(n))]
        both = Observation.concatenate(parts)
        take = torch.rand(n, generator=self.generator) < share
        index = torch.arange(n) + n * take.long()
        return both.take(index)

    def judge(self, name: str, seen: Observation, batches: int) -> Judged:
        accuracy = seen.accuracy
        self.per_sample[name] = error_detection(seen, self.estimator.correctness_from(seen))
        rates: dict[str, dict[str, float]] = {}
        verdicts: dict[str, dict[str, float]] = {}
        for size in SIZES:
            fired = {d: 0 for d in DETECTORS}
            counts = {"ok": 0, "shifted": 0, "failing": 0, "unknown": 0}
            for _ in range(batches):
                index = torch.randint(seen.n, (size,), generator=self.generator)
                found, alarms = self._judge_batch(seen, index, size)
                counts[found] += 1
                for detector, on in alarms.items():
                    fired[detector] += on
            rates[str(size)] = {d: count / batches for d, count in fired.items()}
            verdicts[str(size)] = {v: count / batches for v, count in counts.items()}
        clean = self.clean.accuracy
        return Judged(name, accuracy, clean - accuracy, rates, verdicts)

    def _judge_batch(
        self, seen: Observation, index: Tensor, size: int
    ) -> tuple[str, dict[str, bool]]:
        detector, rate = self.net.detector, self.rate
        batch = self.estimator.one_pass.regrouped(seen, index)
        embedding = batch.features.pop("embedding")
        assert batch.own is not None
        alarm = detector.domain_score_of(batch.own) > detector.threshold(size, rate)
        estimate = self.estimator.estimate_from(batch)
        found = outcome(alarm, estimate, self.estimator, self.tolerance, rate)
        logits = batch.logits.transpose(1, 2).squeeze(2)
        msp = self.msp.domain_score_of(self.msp.features(logits)) > self.msp.threshold(size, rate)
        return found, {
            "failing": found in ("failing", "unknown"),
            "alarm": alarm,
            "max_softmax": msp,
            "ks_embedding": self.ks.alarm(embedding, rate),
        }


def error_detection(seen: Observation, correctness: Tensor) -> dict[str, float]:
    """Return AUROC of errors, AURC and calibration error: correctness against MSP."""
    assert seen.correct is not None and seen.counted is not None
    counted = seen.counted[:, 0]
    correct = seen.correct[counted, 0].double().numpy()
    confidence = {
        "correctness": correctness[counted].double().numpy(),
        "max_softmax": seen.logits[counted, 0].double().softmax(1).amax(1).numpy(),
    }
    result: dict[str, float] = {"accuracy": float(correct.mean())}
    for name, values in confidence.items():
        result[f"{name}/aurc"] = area_under_risk_coverage(values, correct)
        result[f"{name}/ece"] = expected_calibration_error(values, correct)
        if 0 < correct.mean() < 1:
            from sklearn.metrics import roc_auc_score

            result[f"{name}/auroc"] = float(roc_auc_score(correct, values))
    return result


def area_under_risk_coverage(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the mean error of the most confident fraction, over all fractions.

    Geifman and El-Yaniv, Selective Classification for Deep Neural Networks, NeurIPS 2017.
    """
    order = np.argsort(-confidence, kind="stable")
    errors = np.cumsum(1 - correct[order])
    return float((errors / np.arange(1, len(errors) + 1)).mean())


def expected_calibration_error(
    confidence: np.ndarray, correct: np.ndarray, bins: int = 15
) -> float:
    """Return the mean distance of confidence and accuracy over bins of confidence."""
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    total = 0.0
    for b in range(bins):
        chosen = index == b
        if chosen.any():
            total += chosen.mean() * abs(confidence[chosen].mean() - correct[chosen].mean())
    return float(total)
