"""Predict every sample of a manifest, folder or domain, and judge each domain. No torch.

Samples are predicted in parts, each written to a journal (prediction_journal.py). When all are
there, the domains are judged from the sums of the parts, and the rows are written to one file.
Memory holds one part at a time, whatever the number of samples.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from unseen.checks import check_int, check_number
from unseen.deploy.predict_shards import Shards
from unseen.deploy.prediction_journal import WORK, Journal, model_digest, parts_folder
from unseen.deploy.prediction_table import check_ending, table_file
from unseen.deploy.predictions import StoredPart, map_name, predict_part
from unseen.deploy.reductions import Array, from_log_odds, log_odds
from unseen.deploy.samples import UNKNOWN, Samples
from unseen.deploy.scorer import Scorer
from unseen.deploy.smallest import Cut, smallest
from unseen.deploy.sums import Sums
from unseen.errors import UnseenError
from unseen.files import locked
from unseen.functional.verdict import TOLERANCE, Verdict
from unseen.training.progress import TrainingProgress

PART = 2048  # samples; a kill loses at most the part in work


def predict_samples(
    scorer: Scorer,
    samples: Samples,
    out: Path,
    *,
    reject_rate: float = 0.0,
    tolerance: float = TOLERANCE,
    part: int = PART,
    restart: bool = False,
    progress: bool = True,
    shards: Shards | None = None,
) -> dict[str, Any]:
    """Write a row for each sample to CSV, JSON lines or Parquet; return a summary with verdicts.

    A killed call continues with the same arguments. The file appears when it is complete.

    Args:
        scorer: what `open_scorer` returns.
        reject_rate: part of the samples, those least likely to be correct, to hand to a person.
        tolerance: loss of accuracy against the source that is still fine.
        part: samples that are written together.
        restart: discard the parts of an interrupted call.
        shards: predict the parts in several processes or on a cluster; the result is the same.
    """
    check_ending(out)
    if samples.identity.get("data") == str(out.resolve()):
        raise UnseenError(f"{out} holds the samples, --out would replace it: choose another file")
    if check_number("reject_rate", reject_rate, 0) >= 1:
        raise UnseenError(f"reject_rate must lie in [0, 1), not {reject_rate}")
    if reject_rate and not scorer.estimates_accuracy:
        raise UnseenError(
            "reject_rate is for predictions of one class with an accuracy estimator; leave it out"
        )
    place = Path(scorer.place)
    plan = {
        "model": model_digest(place),
        "samples": samples.identity,
        "part": check_int("part", part, 1),
    }
    maps = out.with_name(f"{out.stem}_maps")
    folder = parts_folder(out)
    with locked(folder / WORK):
        journal = Journal(out, plan, restart)
        if shards is None:
            _predict_parts(scorer, samples, journal, part, maps, progress)
        else:
            shards.predict(journal, samples.total, maps, progress)
        count = math.ceil(samples.total / part)
        sums = journal.sums(count)
        judged = {name: scorer.judge(s, tolerance) for name, s in sums.items()}
        rows = _Rows(scorer, journal, count, _shifts(sums, judged), maps)
        if reject_rate:
            rows.cut = smallest(rows.correctness, math.floor(reject_rate * samples.total))
        with table_file(out) as write:
            for columns in rows.columns():
                write(columns)
        journal.remove()
    with contextlib.suppress(OSError):  # Windows removes the lock when it is released
        folder.rmdir()
    every = scorer.judge(reduce(Sums.merge, sums.values()), tolerance)
    return _summary(scorer, out, every, judged, rows, reject_rate)


def _predict_parts(
    scorer: Scorer, samples: Samples, journal: Journal, size: int, maps: Path, progress: bool
) -> None:
    done = journal.done
    references = samples.references(min(done * size, samples.total))
    first = min(done * size, samples.total)
    with TrainingProgress(
        "predict", samples.total, first, quiet=not progress, unit="sample"
    ) as shown:
        for number in range(done, math.ceil(samples.total / size)):
            start = number * size
            part = predict_part(scorer, samples, references, start, size, maps, shown.show)
            if len(part.names) != min(size, samples.total - start):
                raise UnseenError(
                    f"the data changed while they were read: {samples.total} samples were "
                    f"counted, they end after {start + len(part.names)}; run the command again"
                )
            journal.write(number, part)


def _shifts(sums: dict[str, Sums], judged: dict[str, Verdict]) -> dict[str, float]:
    """Return what to add to the log odds of correctness, so that their mean is the accuracy."""
    shifts = {}
    for name, total in sums.items():
        accuracy = judged[name].predicted_accuracy
        if total.odds is not None and accuracy is not None:
            shifts[name] = total.odds.shift_to(accuracy)
    return shifts


@dataclass
class _Count:
    """Counts over the samples of a domain."""

    n: int = 0
    labelled: int = 0
    correct: int = 0


@dataclass
class _Rows:
    """The rows of all parts, made again at every pass; the last pass counts them."""

    scorer: Scorer
    journal: Journal
    count: int
    shifts: dict[str, float]
    maps: Path
    cut: Cut | None = None  # which of them are rejected
    domains: dict[str, _Count] = field(default_factory=dict)
    kept: list[float] = field(default_factory=lambda: [0, 0, 0])  # n, correctness, correct
    rejected: list[float] = field(default_factory=lambda: [0, 0, 0])

    def correctness(self) -> Iterator[Array]:
        """Yield the probability that each prediction is correct, of one part after the other."""
        for part in self.journal.parts(self.count):
            yield self._correctness(part)

    def _correctness(self, part: StoredPart) -> Array:
        assert part.raw is not None
        names, codes = np.unique(part.domains, return_inverse=True)
        shift = np.array([self.shifts[name] for name in names.tolist()])[codes]
        return from_log_odds(log_odds(part.raw) + shift)

    def columns(self) -> Iterator[dict[str, Sequence[Any]]]:
        """Yield the columns of one part after the other."""
        for part in self.journal.parts(self.count):
            columns: dict[str, Sequence[Any]] = {"sample": part.names.tolist()}
            columns |= self._predicted(part)
            if part.raw is not None:
                correctness = self._correctness(part)
                out = np.zeros(len(correctness), bool)
                if self.cut is not None:
                    out = self.cut.below(correctness)
                columns["correctness"] = correctness.tolist()
                columns["rejected"] = out.astype(int).tolist()
                self._tally(out, correctness, part.correct)
            columns["score"] = part.scores.astype(np.float64).tolist()
            columns["domain"] = part.domains.tolist()
            columns |= self._probabilities(part)
            self._count(part)
            yield columns

    def _predicted(self, part: StoredPart) -> dict[str, Sequence[Any]]:
        kind, outputs = self.scorer.labels, part.outputs
        if kind == "map":
            numbers = range(part.start, part.start + len(part.names))
            return {"prediction": [map_name(self.maps, number) for number in numbers]}
        if kind == "number":
            single = outputs.shape[1] == 1
            names = (
                ["prediction"] if single else [f"prediction {i}" for i in range(outputs.shape[1])]
            )
            return {n: c.tolist() for n, c in zip(names, outputs.T.astype(float), strict=True)}
        classes = self.scorer.classes
        if kind == "several":
            chosen = (outputs >= 0.5).tolist()
            return {
                "prediction": [
                    "|".join(n for n, on in zip(classes, row, strict=True) if on) for row in chosen
                ]
            }
        best = outputs.argmax(1)
        highest = outputs.max(1).astype(np.float64).tolist()
        return {"prediction": [classes[c] for c in best], "probability": highest}

    def _probabilities(self, part: StoredPart) -> dict[str, Sequence[Any]]:
        if self.scorer.labels not in ("classes", "several"):
            return {}
        values = part.outputs.T.astype(np.float64)
        return {
            f"probability of {name}": column.tolist()
            for name, column in zip(self.scorer.classes, values, strict=True)
        }

    def _tally(self, out: Array, correctness: Array, correct: Array) -> None:
        for total, chosen in ((self.rejected, out), (self.kept, ~out)):
            total[0] += int(chosen.sum())
            total[1] += float(correctness[chosen].sum())
            total[2] += int((correct[chosen] == 1).sum())

    def _count(self, part: StoredPart) -> None:
        for name in dict.fromkeys(part.domains.tolist()):
            of_domain = part.correct[part.domains == name]
            total = self.domains.setdefault(name, _Count())
            total.n += len(of_domain)
            total.labelled += int((of_domain != UNKNOWN).sum())
            total.correct += int((of_domain == 1).sum())


def _summary(
    scorer: Scorer,
    out: Path,
    every: Verdict,
    judged: dict[str, Verdict],
    rows: _Rows,
    reject_rate: float,
) -> dict[str, Any]:
    domains: dict[str, dict[str, Any]] = {}
    for name, verdict in judged.items():
        domains[name] = {**verdict.as_dict(), **_accuracy([rows.domains[name]])}
    result: dict[str, Any] = {"model": scorer.place, "out": str(out), **every.as_dict()}
    result |= _accuracy([*rows.domains.values()])
    if len(domains) == 1:
        result["domain"] = next(iter(domains))
    if scorer.labels == "map":
        result["maps"] = str(rows.maps)
    result["reject_rate"] = reject_rate
    if scorer.estimates_accuracy:
        kept, rejected = rows.kept, rows.rejected
        result["rejected"] = int(rejected[0])
        result["expected_accuracy_of_kept"] = _mean(kept[1], kept[0])
        result["expected_accuracy_of_rejected"] = _mean(rejected[1], rejected[0])
        if "accuracy" in result:
            result["accuracy_of_kept"] = _mean(kept[2], kept[0])
    return {**result, "domains": domains}


def _accuracy(counts: Sequence[_Count]) -> dict[str, float]:
    """Return the accuracy where every sample has a label."""
    n = sum(c.n for c in counts)
    if n != sum(c.labelled for c in counts):
        return {}
    return {"accuracy": sum(c.correct for c in counts) / n}


def _mean(total: float, n: float) -> float | None:
    return total / n if n else None
