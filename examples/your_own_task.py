"""A task of your own, for the command line: where the data comes from, the model, and where in it noise enters.

    cd examples && unseen train your_own_task:waves --out /path/to/run && unseen evaluate /path/to/run --task your_own_task:waves

Running this file does the same in Python, in a temporary folder.
"""

from __future__ import annotations

import tempfile
from functools import partial

import torch
from torch import nn
from torch.utils.data import TensorDataset

import unseen
from unseen.experiments import evaluate as exam
from unseen.training import run


def load(drift: float, split: str) -> TensorDataset:
    """Splits: a source has train, val and test; a target has test, and train if it can be adapted to."""
    g = torch.Generator().manual_seed({"train": 0, "val": 1, "test": 2}[split])
    y = torch.arange(300) % 3
    x = torch.sin((1 + y[:, None]) * torch.linspace(0, 6.28, 64) + torch.rand(300, 1, generator=g))
    return TensorDataset((x + 0.3 * torch.randn(300, 64, generator=g)) * (1 + drift) + drift, y)


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def waves() -> unseen.Task:
    return unseen.Task(
        name="waves",
        summary="three kinds of waves, recorded by other microphones",
        source=unseen.Domain("studio", partial(load, 0.0)),
        targets=(
            unseen.Domain("hall", partial(load, 0.5)),
            unseen.Domain("street", partial(load, 1.5)),
        ),
        classes=3,
        model=model,
        sites=("0",),
        embedding="2",
        presets={"fast": {"steps": 150, "batch": 32, "lr": 1e-3}},
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        done = run.train(waves(), "uncertainty_guided", f"{folder}/run")
        result = exam.evaluate(done, waves())
        print(
            {name: round(d["accuracy"], 3) for name, d in result["domains"].items()},
            "average",
            round(result["average"], 3),
        )
        for name in ("source", "hall", "street"):
            scored = exam.score(done, waves(), name, batch=64)
            verdict = "ALARM" if scored["alarm"] else "no alarm"
            print(
                f"{name}: score {scored['score']:.3f}, threshold {scored['threshold']:.3f}, {verdict}"
            )
