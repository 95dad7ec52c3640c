"""Predict a temperature from a sensor's readings, and notice when the sensor drifts.

    python examples/regression.py

A regression has no classes: the verdict is ok or shifted, without a predicted accuracy.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen.adaptation import fine_tune


def readings(n: int, seed: int, drift: float = 0.0) -> TensorDataset:
    """Eight voltages that depend on the temperature; a sensor that ages adds an offset."""
    g = torch.Generator().manual_seed(seed)
    temperature = 20 + 10 * torch.rand(n, generator=g)
    gains = torch.linspace(0.5, 1.5, 8)
    x = gains * (temperature[:, None] - 25) / 5 + 0.1 * torch.randn(n, 8, generator=g)
    return TensorDataset(x + drift, (temperature - 25) / 5)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
net = unseen.UncertaintyGuided(model, sites=["0"], embedding="2", loss="huber", lr=3e-3)

loader = DataLoader(readings(600, seed=0), 60, shuffle=True)
held_out = DataLoader(readings(300, seed=1), 60)
unseen.fit(net, loader, steps=200, held_out=held_out, clip=1.0, progress=False)

for name, drift in (("new readings", 0.0), ("aged sensor", 2.0)):
    x, y = readings(200, seed=2, drift=drift).tensors
    error = 5 * (net.predict(x)[:, 0] - y).abs().mean()
    verdict = net.verdict(x)
    print(f"{name}: off by {error:.1f} degrees, {verdict.verdict}{', ALARM' * verdict.alarm}")
    print(f"  {verdict.sentence}")

few_x, few_y = readings(30, seed=3, drift=2.0).tensors
adapted = fine_tune(net, few_x, few_y, steps=200, lr=3e-3)
error = 5 * (adapted(x)[:, 0] - y).abs().mean()
print(f"aged sensor after 30 labels: off by {error:.1f} degrees")
