"""Users' own tasks of milliseconds without classes: a regression and several labels."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from unseen import Domain, Task

SEEDS = {"train": 0, "val": 1, "test": 2}


def numbers(split: str, shift: float = 0.0, n: int = 240) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(SEEDS[split])
    x = torch.randn(n, 6, generator=g)
    return x + shift, x


def regression(split: str, shift: float = 0.0) -> TensorDataset:
    x, clean = numbers(split, shift)
    return TensorDataset(x, 3 * clean[:, 0] + clean[:, 1])


def labels(split: str, shift: float = 0.0) -> TensorDataset:
    x, clean = numbers(split, shift)
    return TensorDataset(x, (clean[:, :3] > 0).float())


def mlp(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, outputs)
    )


FAST = {
    "steps": 60, "batch_size": 40, "lr": 1e-2, "checkpoint_every": 30,
    "uncertainty_guided": {"warmup": 20, "draws": 1, "adversary": {"rounds": 1, "steps": 2}},
}  # fmt: skip


def task(name: str, data, loss: str, metric: str, outputs: int, **fields) -> Task:
    return Task(
        name=name, summary="numbers", source=Domain("here", data), loss=loss, metric=metric,
        targets=(Domain("near", lambda s: data(s, 0.2)), Domain("far", lambda s: data(s, 3.0))),
        classes=outputs, model=lambda: mlp(outputs), sites=("0",), embedding="2",
        presets={"fast": FAST}, **fields,
    )  # fmt: skip


def prices() -> Task:
    return task("prices", regression, "huber", "mae", 1)


def tags() -> Task:
    return task("tags", labels, "bce", "map", 3, class_names=("red", "green", "blue"))
