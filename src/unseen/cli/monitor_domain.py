"""`unseen monitor` on the samples of a domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from unseen.api import Batch, Domain
from unseen.cli.monitor import BATCH
from unseen.cli.options import RunData, emit, only_domain, say, task_of
from unseen.detection.monitor import Reading
from unseen.errors import UnseenError
from unseen.experiments.monitor_run import open_monitor
from unseen.training.batches import load_split, take
from unseen.training.identity import check_seed
from unseen.training.run import Run


def monitor_domain(
    run: Path,
    domain: str | None,
    then: str | None,
    settings: dict[str, Any],
    verdicts: bool,
    seed: int,
    task: str | None,
    own: RunData,
    device: str,
    json_: bool,
) -> None:
    """Stream the samples of a domain, or of one after the other, through a run."""
    chosen_task = task_of(Run(run), task, own)
    domain = only_domain(chosen_task, domain)
    check_seed(seed)
    domains = [chosen_task.domain(name) for name in (domain, then) if name is not None]
    batch = _batch_size(domains, settings["batch"])
    settings = {**settings, "batch": batch}
    stream = open_monitor(run, chosen_task, device=device, verdicts=verdicts, **settings)
    detector = stream.detector
    if not detector.reads_learned_noise:
        say(f"this run has no learned sigma; the score is a fallback: {detector.name}")
    readings = []
    for current in domains:
        for part in _batches(current, batch, seed):
            reading = stream.update(part.x)
            readings.append({"domain": current.name, **asdict(reading), "alarm": reading.alarm})
            if not json_:
                print(_line(current.name, reading), flush=True)
    by_domain = {d.name: [r for r in readings if r["domain"] == d.name] for d in domains}
    result: dict[str, Any] = {
        "run": str(run),
        **settings,
        "score_name": detector.name,
        "readings": readings,
        "alarms": {name: sum(r["alarm"] for r in rows) for name, rows in by_domain.items()},
        "batches": {name: len(rows) for name, rows in by_domain.items()},
    }
    if not emit(result, json_):
        counts = [
            f"{name}: {result['alarms'][name]} alarms in {len(rows)} batches"
            for name, rows in by_domain.items()
        ]
        print("; ".join(counts))


def _batches(domain: Domain, size: int, seed: int) -> Iterator[Batch]:
    """Yield the domain's samples in random order, in full batches; files may be sorted by class."""
    data, total = load_split(domain, "test"), _samples_of(domain)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    for part in order[: total // size * size].split(size):
        yield take(data, part)


def _batch_size(domains: list[Domain], size: int | None) -> int:
    """Return the size of the batches; raise if a domain has fewer samples than was asked for."""
    smallest = min(domains, key=_samples_of)
    total = _samples_of(smallest)
    if size is None:
        if total < BATCH:
            say(f"{smallest.name} has {total} samples: batches of {total}, not of {BATCH}")
        return min(BATCH, total)
    if not 1 <= size <= total:
        raise UnseenError(
            f"--batch must lie between 1 and the {total} samples of {smallest.name}, not {size}"
        )
    return size


def _samples_of(domain: Domain) -> int:
    return len(load_split(domain, "test"))  # type: ignore[arg-type]


def _line(domain: str, r: Reading) -> str:
    alarms = [name for name, on in (("batch", r.batch_alarm), ("slow", r.slow_alarm)) if on]
    scores = f"score {r.score:.4f} of {r.threshold:.4f}"
    slow = f"slow {r.slow_score:.4f} of {r.slow_threshold:.4f}"
    end = "ALARM: " + ", ".join(alarms) if alarms else "-"
    if r.verdict is not None and r.predicted_accuracy is not None:
        end = f"{r.verdict:<8s} {100 * r.predicted_accuracy:5.1f} %   {end}"
    return f"{r.batch:5d}  {domain:<12s} {scores}   {slow}   {end}"
