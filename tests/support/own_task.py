"""A user's own task of milliseconds. `faults` makes its code fail, print or return nonsense.

The key is a place: factory, load, item, model or forward. The value is a function: of nothing for
"factory", else of what the place would return. What it returns is used instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unseen import Domain, Task

faults: dict[str, Callable[..., Any]] = {}
SEEDS = {"train": 0, "val": 1, "test": 2}


def faulty(place: str, value: Any) -> Any:
    return faults[place](value) if place in faults else value


class Bars(Dataset):
    def __init__(self, split: str, noise: float) -> None:
        g = torch.Generator().manual_seed(SEEDS[split])
        self.y = torch.arange(24) % 3
        self.x = 0.3 * torch.randn(24, 1, 6, 6, generator=g)
        self.x[torch.arange(24), :, 2 * self.y] += 1
        self.x += noise * torch.randn(self.x.shape, generator=g)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> Any:
        return faulty("item", (self.x[i], int(self.y[i])))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.fc1 = nn.Linear(16, 6)
        self.fc2 = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        h = torch.relu(self.conv1(x))[:, :, ::2, ::2].flatten(1)
        return faulty("forward", self.fc2(torch.relu(self.fc1(h))))


def domain(name: str, noise: float) -> Domain:
    return Domain(name, lambda split: faulty("load", Bars(split, noise)))


def make(**fields: Any) -> Task:
    if "factory" in faults:
        return faults["factory"]()
    fast = {
        "steps": 2, "batch_size": 8, "checkpoint_every": 1,
        "uncertainty_guided": {"warmup": 1, "draws": 1, "adversary": {"rounds": 1, "steps": 1}},
    }  # fmt: skip
    usual = {
        "name": "own", "summary": "bars", "source": domain("bars", 0.0),
        "targets": (domain("grain", 0.5),), "classes": 3, "model": lambda: faulty("model", Net()),
        "sites": ("conv1",), "embedding": "fc1", "presets": {"fast": fast},
    }  # fmt: skip
    return Task(**{**usual, **fields})


# Commands that run the code of the task, by name: functions of a finished run and a new folder.
OWN = ("--task", "own_task:make")
COMMANDS = {
    "train": lambda run, new: ("train", "own_task:make", "--out", new),
    "evaluate": lambda run, new: ("evaluate", run, *OWN),
    "score": lambda run, new: ("score", run, "--domain", "grain", *OWN),
    "monitor": lambda run, new: ("monitor", run, "--domain", "grain", "--batch", 8, *OWN),
    "calibrate": lambda run, new: ("calibrate", run, "--at", "embedding", *OWN),
    "estimate": lambda run, new: ("estimate", run, "--domain", "grain", *OWN),
    "adapt": lambda run, new: ("adapt", run, "--shots", 1, "--draws", 1, "--steps", 1, *OWN),
    "compare-scores": lambda run, new: ("compare-scores", run, "--out", new, *OWN),
}
