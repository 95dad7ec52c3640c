"""A tiny task: noise, and a class by the rows that are lit; a shift is more noise."""

from __future__ import annotations

import torch
from tiny import TinyNet
from torch.utils.data import TensorDataset

from unseen import Domain, Task

QUICK = {
    # With noise that only adds, sixty steps are enough for a score that separates single samples.
    "uncertainty_guided": {
        "warmup": 4,
        "draws": 1,
        "adversary": {"rounds": 1, "steps": 2},
        "noise": {"sign": "positive", "scale": 8.0},
    },
    "bnn": {"passes": 4, "sigma_start": 0.3},
    "mc_dropout": {"passes": 4},
}
SHIFTS = {"near/1": 0.2, "near/2": 0.6, "far/1": 1.5, "far/2": 3.0}


def samples(split: str, shift: float = 0.0, n: int = 60) -> TensorDataset:
    g = torch.Generator().manual_seed({"train": 0, "val": 1, "test": 2}[split])
    y = torch.arange(n) % 3
    x = 0.3 * torch.randn(n, 2, 8, 8, generator=g)
    for i, label in enumerate(y):
        x[i, :, 2 * label : 2 * label + 3] += 1.0
    return TensorDataset(x + shift * torch.randn(x.shape, generator=g), y)


def light_task() -> Task:
    targets = [Domain(name, lambda split, s=s: samples(split, s)) for name, s in SHIFTS.items()]
    return Task(
        name="light",
        summary="a toy",
        classes=3,
        model=TinyNet,
        sites=("conv1",),
        embedding="fc1",
        source=Domain("lit", samples),
        targets=tuple(targets),
        presets={"fast": {"steps": 60, "batch_size": 20, "lr": 1e-2, **QUICK}},
    )
