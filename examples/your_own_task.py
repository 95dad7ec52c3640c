"""Define a task of your own for the command line.

    cd examples
    unseen train your_own_task:waves --out /path/to/run
    unseen evaluate /path/to/run --task your_own_task:waves

Running this file does the same in Python, in a temporary folder.
"""

from __future__ import annotations

import tempfile
from functools import partial

import torch
from torch import nn
from torch.utils.data import TensorDataset

import unseen
from unseen.experiments.evaluate import evaluate
from unseen.experiments.score import score
from unseen.training.train import train


def load(drift: float, split: str) -> TensorDataset:
    """Return a split: a source has train, val and test; a target test, and train to adapt to."""
    g = torch.Generator().manual_seed({"train": 0, "val": 1, "test": 2}[split])
    y = torch.arange(300) % 3
    x = torch.sin((1 + y[:, None]) * torch.linspace(0, 6.28, 64) + torch.rand(300, 1, generator=g))
    return TensorDataset((x + 0.3 * torch.randn(300, 64, generator=g)) * (1 + drift) + drift, y)


def model() -> nn.Module:
    """Return the network."""
    return nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def waves() -> unseen.Task:
    """Return the task."""
    return unseen.Task(
        name="waves",
        summary="three classes of waves, recorded by unseen microphones",
        source=unseen.Domain("studio", partial(load, 0.0)),
        targets=(
            unseen.Domain("hall", partial(load, 0.5)),
            unseen.Domain("street", partial(load, 1.5)),
        ),
        classes=3,
        model=model,
        sites=("0",),
        embedding="2",
        presets={"fast": {"steps": 150, "batch_size": 32, "lr": 1e-3}},
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run = train(waves(), "uncertainty_guided", f"{folder}/run")
        result = evaluate(run, waves())
        for name, domain in result["domains"].items():
            print(f"{name}: accuracy {domain['accuracy']:.3f}")
        print(f"average over unseen domains: {result['average']:.3f}")
        for name in ("source", "hall", "street"):
            reading = score(run, waves(), name, batch=64)
            print(
                f"{name}: score {reading['score']:.3f}, threshold {reading['threshold']:.3f}, "
                f"{'ALARM' if reading['alarm'] else 'no alarm'}"
            )
