"""A toy source and a shifted target, as points and as images, with trained models."""

from __future__ import annotations

import copy
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from unseen import Domain, Task


class PointNet(nn.Module):
    """Two numbers -> two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(2, 24)
        self.fc2 = nn.Linear(24, 12)
        self.fc3 = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


def points(right: float = 0.0, above: float = 4.5, n: int = 400, seed: int = 0) -> TensorDataset:
    """Two vertical strips, one per class; a target's are to the right and above."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.stack([2.0 * y - 1, 4 * torch.rand(n, generator=g) - 2], dim=1) + 0.1 * torch.randn(
        n, 2, generator=g
    )
    return TensorDataset(x + torch.tensor([right, above if right else 0.0]), y)


def strips(task_name: str = "strips") -> Task:
    """A task of two strips of points; no boundary serves both domains."""
    seeds = {"train": 0, "val": 1, "test": 2}
    return Task(
        name=task_name,
        summary="points",
        source=Domain("left", lambda split: points(seed=seeds[split])),
        targets=(Domain("right", lambda split: points(1.5, 0.0, seed=10 + seeds[split])),),
        classes=2,
        model=PointNet,
        sites=("fc1",),
        embedding="fc2",
        presets={
            "fast": {
                "steps": 150,
                "batch_size": 32,
                "lr": 0.01,
                "uncertainty_guided": {"draws": 1, "adversary": {"steps": 1}},
            }
        },
    )


class PictureNet(nn.Module):
    """(N, 1, 10, 10) -> two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.fc1 = nn.Linear(8 * 16, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(F.max_pool2d(F.relu(self.conv1(x)), 2).flatten(1))))


def pictures(
    light: float = 0.0, darkest: float | None = None, n: int = 400, seed: int = 0
) -> TensorDataset:
    """A vertical or horizontal bright bar on a background from `darkest` to `light`."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    place = torch.randint(3, 7, (n, 1, 1), generator=g)
    bar = ((torch.arange(10) - place).abs() <= 1).float().expand(n, 10, 10)
    x = torch.where(y.view(-1, 1, 1) == 1, bar, bar.transpose(1, 2))[:, None]
    low = light if darkest is None else darkest
    ground = low + (light - low) * torch.rand(n, 1, 1, 1, generator=g)
    return TensorDataset(ground + (0.9 - ground) * x + 0.1 * torch.rand(x.shape, generator=g), y)


def learned(kind: type[nn.Module], data: TensorDataset, steps: int = 300) -> nn.Module:
    """Train a model with ERM."""
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, y = data.tensors
    for _ in range(steps):
        pick = torch.randint(len(y), (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[pick]), y[pick]).backward()
        optimizer.step()
    return model


@cache
def _start(name: str) -> nn.Module:
    with torch.random.fork_rng(
        devices=[]
    ):  # the first to ask must not draw other numbers than the second
        return (
            learned(PointNet, points())
            if name == "points"
            else learned(PictureNet, pictures(), 100)
        )


def start(name: str) -> nn.Module:
    """Return a copy of a model trained on the source, "points" or "pictures"."""
    return copy.deepcopy(_start(name))


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    x, y = data.tensors
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def few(data: TensorDataset, shots: int) -> TensorDataset:
    """Return the first `shots` samples of each class."""
    x, y = data.tensors
    chosen = torch.cat(
        [torch.nonzero(y == label).flatten()[:shots] for label in range(int(y.max()) + 1)]
    )
    return TensorDataset(x[chosen], y[chosen])
