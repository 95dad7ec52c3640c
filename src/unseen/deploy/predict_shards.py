"""Predict the parts of a journal in several processes or on a cluster.

Every worker opens the model and the samples by itself and writes its parts to the shared folder;
what follows is done from these files, as after a prediction in one process.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.deploy.prediction_journal import Journal
from unseen.deploy.predictions import predict_part
from unseen.deploy.samples import Samples
from unseen.deploy.scorer import Scorer
from unseen.errors import UnseenError
from unseen.experiments.runners.jobs import Job, Runner, run_jobs
from unseen.training.progress import TrainingProgress

SHARDS = 4  # jobs for each worker: one that is slow or lost holds up little

# Opens the model and the samples; it is sent to the workers.
Opener = Callable[..., tuple[Scorer, Samples]]


@dataclass(frozen=True)
class Shards:
    """Where the parts are predicted, and how workers open what they need."""

    runner: Runner
    opener: Opener

    def predict(self, journal: Journal, total: int, maps: Path, progress: bool) -> None:
        """Predict the parts that are missing; raise if a shard failed."""
        size = journal.plan["part"]
        missing = [n for n in range(math.ceil(total / size)) if not journal.path(n).exists()]
        jobs = [self._job(journal, numbers, maps) for numbers in self._cut(missing)]

        def done() -> int:
            parts = sum(journal.path(n).exists() for n in missing)
            return min(total, total - len(missing) * size + parts * size)

        first = max(0, total - len(missing) * size)
        with TrainingProgress("predict", total, first, quiet=not progress, unit="sample") as shown:
            failed = run_jobs(jobs, self.runner, lambda: shown.show(max(first, done())))
        if failed:
            label, message = next(iter(failed.items()))
            raise UnseenError(f"{label} failed: {message}; run the command again to go on")

    def _cut(self, missing: Sequence[int]) -> list[list[int]]:
        """Cut the missing parts into runs of neighbours, several for each worker."""
        most = max(1, math.ceil(len(missing) / (SHARDS * self.runner.capacity())))
        shards: list[list[int]] = []
        for number in missing:
            if shards and shards[-1][-1] == number - 1 and len(shards[-1]) < most:
                shards[-1].append(number)
            else:
                shards.append([number])
        return shards

    def _job(self, journal: Journal, numbers: Sequence[int], maps: Path) -> Job:
        first, last = numbers[0], numbers[-1]
        return Job(
            label=f"parts {first} to {last}",
            function=predict_shard,
            arguments=(self.opener, journal.out.absolute(), journal.plan, numbers, maps.absolute()),
            log=journal.folder / f"{first:06d}.log",
            succeeded=lambda: all(journal.path(n).exists() for n in numbers),
        )


def predict_shard(
    opener: Opener, out: Path, plan: dict[str, Any], numbers: Sequence[int], maps: Path
) -> None:
    """Predict neighbouring parts in a worker; one that was lost has left the first of them."""
    journal, size = Journal(out, plan), int(plan["part"])
    left = list(itertools.dropwhile(lambda n: journal.path(n).exists(), numbers))
    if not left:
        return
    scorer, samples = opener()
    if _as_kept(samples.identity) != plan["samples"]:
        raise UnseenError("the samples are not those that the command has counted: run it again")
    references = samples.references(left[0] * size)
    for number in left:
        start = number * size
        part = predict_part(scorer, samples, references, start, size, maps)
        if len(part.names) != min(size, samples.total - start):
            raise UnseenError(
                f"the data changed while they were read: {samples.total} samples were counted, "
                f"they end after {start + len(part.names)}; run the command again"
            )
        journal.write(number, part)


def _as_kept(identity: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies samples as a journal keeps it: as JSON."""
    kept: dict[str, Any] = json.loads(json.dumps(identity))
    return kept
