"""One setting of one method, measured on synthetic shifts of held-out source data: how settings are chosen without a target.

    python benchmarks/tune_on_shifts.py driving/camvid_day erm --set steps=300 --seeds 0 1
    python benchmarks/tune_on_shifts.py driving/camvid_day uncertainty_guided --set noise.scale=1 --set draws=1

Every kind of shift of `unseen.detection.synthetic_shifts` at its strengths, on the source's `val` split. No target is read.
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
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from unseen.api import Task
from unseen.detection.synthetic_shifts import shifts_for
from unseen.schema import parse_settings
from unseen.tasks import task_named
from unseen.training.batches import batches_of, load_split, subsample
from unseen.training.evaluation import evaluate_metric
from unseen.training.train import train


def held_out(task: Task, samples: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Inputs and labels of random samples of the source's val split."""
    parts = list(batches_of(subsample(load_split(task.source, "val"), samples)))
    x = tuple(torch.cat(t) for t in zip(*(b.x for b in parts), strict=True))
    return x, torch.cat([b.y for b in parts])


def shifted(task: Task, samples: int) -> Iterator[tuple[str, Dataset]]:
    x, y = held_out(task, samples)
    yield "clean", TensorDataset(*x, y)
    for kind, strengths in shifts_for(x, label_maps=y.dim() > 1).items():
        for number, shift in enumerate(strengths, start=1):
            yield f"{kind} {number}", TensorDataset(*shift(x, torch.Generator().manual_seed(0)), y)


def measured(
    task: Task, method: str, overrides: dict[str, Any], seed: int, samples: int
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        net = train(
            task,
            method,
            Path(folder) / "run",
            overrides=overrides,
            seed=seed,
            progress=sys.stderr.isatty(),
        ).load(task)
        return {
            name: evaluate_metric(task.metric, net, data, task.ignore_label).value
            for name, data in shifted(task, samples)
        }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("task", help="a task, or task/variant")
    words.add_argument("method")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    words.add_argument("--seeds", type=int, nargs="+", default=[0])
    words.add_argument("--samples", type=int, default=500, help="of the held-out split")
    said = words.parse_args()
    task, overrides = task_named(said.task), parse_settings(said.set)
    found = [measured(task, said.method, overrides, seed, said.samples) for seed in said.seeds]
    by_shift = {shift: round(mean(one[shift] for one in found), 4) for shift in found[0]}
    average = round(mean(value for shift, value in by_shift.items() if shift != "clean"), 4)
    told = {
        "task": said.task,
        "method": said.method,
        "set": overrides,
        "seeds": said.seeds,
        "metric": task.metric,
    }
    print(json.dumps({**told, "average": average, "shifts": by_shift}))


if __name__ == "__main__":
    main()
