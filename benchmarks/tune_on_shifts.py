"""Evaluate settings of a method on synthetic shifts of held-out source data, without any target.

    python benchmarks/tune_on_shifts.py driving/camvid_day erm --set steps=300 --seeds 0 1
    python benchmarks/tune_on_shifts.py driving/camvid_day uncertainty_guided --set noise.scale=1

Uses every shift of `unseen.detection.synthetic_shifts` at each strength, on the `val` split of the
source. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

from unseen.api import Task
from unseen.detection.synthetic_shifts import shifts_for
from unseen.errors import UnseenError
from unseen.experiments.runners.jobs import Job, run_jobs
from unseen.experiments.runners.local import LocalRunner
from unseen.schema import parse_settings
from unseen.tasks import task_named
from unseen.training.batches import batches_of, load_split, subsample
from unseen.training.evaluation import evaluate_metric
from unseen.training.train import train


def shifted_data(task: Task, samples: int) -> Iterator[tuple[str, Dataset]]:
    """Yield random samples of the source's val split, clean and under every shift."""
    batches = list(batches_of(subsample(load_split(task.source, "val"), samples)))
    x = tuple(torch.cat(t) for t in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches])
    yield "clean", TensorDataset(*x, y)
    for kind, strengths in shifts_for(x, label_maps=y.dim() > 1).items():
        for number, shift in enumerate(strengths, start=1):
            yield f"{kind} {number}", TensorDataset(*shift(x, torch.Generator().manual_seed(0)), y)


def train_and_evaluate(
    word: str, method: str, settings: dict[str, Any], seed: int, samples: int, folder: Path
) -> None:
    """Train one seed and write the metric under every shift to `folder`.json."""
    task = task_named(word)
    run = train(task, method, folder, overrides=settings, seed=seed, progress=False)
    net = run.load(task)
    metrics = {
        name: evaluate_metric(task.metric, net, data, task.ignore_label).value
        for name, data in shifted_data(task, samples)
    }
    folder.with_suffix(".json").write_text(json.dumps(metrics))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", help="a task, or task/variant")
    parser.add_argument("method")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--samples", type=int, default=500, help="of the held-out split")
    parser.add_argument("--workers", type=int, default=2, help="seeds at a time, one thread each")
    args = parser.parse_args()
    settings = parse_settings(args.set)
    with tempfile.TemporaryDirectory() as name:
        folders = {seed: Path(name) / f"seed{seed}" for seed in args.seeds}
        jobs = [
            Job(
                f"seed {seed}",
                train_and_evaluate,
                (args.task, args.method, settings, seed, args.samples, folder),
                folder.with_suffix(".log"),
                folder.with_suffix(".json").exists,
            )
            for seed, folder in folders.items()
        ]
        if failed := run_jobs(jobs, LocalRunner(args.workers)):
            sys.exit("\n".join(f"{label} failed: {why}" for label, why in failed.items()))
        results = [json.loads(f.with_suffix(".json").read_text()) for f in folders.values()]
    shifts = {shift: round(mean(r[shift] for r in results), 4) for shift in results[0]}
    result = {
        "task": args.task,
        "method": args.method,
        "set": settings,
        "seeds": args.seeds,
        "metric": task_named(args.task).metric,
        "average": round(mean(value for shift, value in shifts.items() if shift != "clean"), 4),
        "shifts": shifts,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except UnseenError as error:
        sys.exit(str(error))
