"""`unseen monitor`: a domain streamed past a finished run, batch by batch. `unseen calibrate`: where its score is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from cyclopts import App

from unseen.api import Batch, Domain, ScoreAt
from unseen.cli.options import Count, Device, Json, RunFolder, Seed, TaskWord, emit, say, task_of
from unseen.detection.monitor import DomainMonitor, Reading
from unseen.errors import UnseenError
from unseen.experiments.evaluate import recalibrate
from unseen.training.batches import load_split, take
from unseen.training.identity import check_seed
from unseen.training.run import Run


def attach(app: App) -> None:
    app.command(monitor)
    app.command(calibrate)


def calibrate(
    run: RunFolder,
    *,
    at: ScoreAt,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Read a finished run's score elsewhere, and take its source statistics anew; its weights stay as they are.

    Parameters
    ----------
    at
        At the first site, as in the paper, or at the embedding, which orders domains by their error better.
    """
    finished = Run(run)
    result = recalibrate(finished, task_of(finished, task), at, device)
    if not emit(result, json_):
        print(
            f"{run}: the score is read at the {result['score_at']} now; alarm at 64 samples: {result['threshold']:.4f}"
        )


def monitor(
    run: RunFolder,
    *,
    domain: str,
    then: str | None = None,
    batch: Count = 64,
    memory: Count = 20,
    false_alarm_rate: float = 0.01,
    seed: Seed = 0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Stream a domain's samples past a run, batch by batch, and watch score and alarm.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source.
    then
        Another domain that follows, so that a drift is seen.
    batch
        Samples at a time.
    memory
        About so many batches make the slow score, which sees a drift too small for one batch to show.
    false_alarm_rate
        How often a batch of the source may raise the alarm.
    """
    at = Run(run)
    made = task_of(at, task)
    check_seed(seed)
    domains = [made.domain(name) for name in (domain, then) if name is not None]
    watcher = DomainMonitor.from_run(
        run, made, device=device, batch=batch, memory=memory, false_alarm_rate=false_alarm_rate
    )
    if watcher.net.score_name != "sigma":
        say(f"this run has no learned sigma; the score is a fallback: {watcher.net.score_name}")
    readings = []
    for place in domains:
        for part in _stream(place, batch, seed):
            reading = watcher.update(part.x)
            readings.append({"domain": place.name, **asdict(reading), "alarm": reading.alarm})
            if not json_:
                print(_line(place.name, reading), flush=True)
    result: dict[str, Any] = {
        "run": str(run),
        "batch": batch,
        "memory": memory,
        "false_alarm_rate": false_alarm_rate,
        "score_name": watcher.net.score_name,
        "readings": readings,
        "alarms": {
            d.name: sum(r["alarm"] for r in readings if r["domain"] == d.name) for d in domains
        },
        "batches": {d.name: sum(r["domain"] == d.name for r in readings) for d in domains},
    }
    if not emit(result, json_):
        print(
            "; ".join(
                f"{d.name}: {result['alarms'][d.name]} alarms in {result['batches'][d.name]} batches"
                for d in domains
            )
        )


def _stream(domain: Domain, size: int, seed: int) -> Iterator[Batch]:
    """The domain's samples in random order, in whole batches: data on disk is often sorted by class."""
    data = load_split(domain, "test")
    total = len(data)  # type: ignore[arg-type]
    if not 1 <= size <= total:
        raise UnseenError(
            f"--batch must lie between 1 and the {total} samples of {domain.name}, not {size}"
        )
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    for part in order[: total // size * size].split(size):
        yield take(data, part)


def _line(domain: str, r: Reading) -> str:
    told = ", ".join(
        word for word, raised in (("batch", r.batch_alarm), ("slow", r.slow_alarm)) if raised
    )
    scores = f"score {r.score:.4f} of {r.threshold:.4f}   slow {r.slow_score:.4f} of {r.slow_threshold:.4f}"
    return f"{r.batch:5d}  {domain:<12s} {scores}   {'ALARM: ' + told if told else '-'}"
