"""A task of seconds: a bright bar left, centre or right; unseen: grain, fog and darkness."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from unseen import Domain, Method, Task

PLACES = ((1, 3), (3, 5), (5, 7))
SEEDS = {"train": 1, "val": 2, "test": 3}


def bars(
    n: int, seed: int, grain: float = 0.0, fog: float = 0.0, light: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 8, 8) in 0..1 and their classes; the source has some grain of its own."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    x = 0.2 + 0.1 * torch.randn(n, 1, 8, 8, generator=g)
    for place, (left, right) in enumerate(PLACES):
        x[y == place, :, :, left:right] += 0.25 + 0.3 * torch.rand(
            int((y == place).sum()), 1, 1, 1, generator=g
        )
    x = light * ((1 - fog) * x + 0.8 * fog) + grain * torch.randn(n, 1, 8, 8, generator=g)
    return x.clamp(0, 1), y


class BarNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.fc1 = nn.Linear(8 * 36, 16)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv1(x)).flatten(1)
        return self.fc2(torch.relu(self.fc1(h)))


def _source(split: str) -> TensorDataset:
    return TensorDataset(*bars(400, SEEDS[split]))


def make() -> Task:
    def unseen(name: str, **how: float) -> Domain:
        return Domain(name, lambda split: TensorDataset(*bars(300, 10 + SEEDS[split], **how)))

    shifts = {"grainy": {"grain": 0.5}, "foggy": {"fog": 0.7}, "dark": {"light": 0.3}}
    return Task(
        name="toy",
        summary="bars",
        source=Domain("bars", _source),
        targets=tuple(unseen(name, **how) for name, how in shifts.items()),
        classes=3,
        model=BarNet,
        sites=("conv1",),
        embedding="fc1",
        presets={
            "fast": {
                "steps": 120, "batch_size": 32, "lr": 3e-3,
                "uncertainty_guided": {
                    "warmup": 20, "adversary": {"rounds": 5, "steps": 10}, "draws": 2
                },
            }
        },
    )  # fmt: skip


def assert_source_batches_alarm_as_rarely_as_stated(
    net: Method, size: int, batches: int = 500
) -> None:
    """Check fresh data, which the calibration has not seen, up to three standard errors."""
    features = net.detector.look(bars(batches * size, seed=1000)[0]).features
    scores = net.detector.reduce(features.view(batches, size, -1).mean(1))
    for rate in (0.01, 0.05):
        share = float((scores > net.threshold(size, rate)).double().mean())
        assert share <= rate + 3 * (rate * (1 - rate) / batches) ** 0.5
