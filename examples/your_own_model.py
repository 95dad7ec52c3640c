"""Train your own model on your own data, predict, score, save, load and adapt.

python examples/your_own_model.py
"""

from __future__ import annotations

import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen.adaptation import fine_tune

torch.manual_seed(0)


def waves(n: int, drift: float = 0.0) -> TensorDataset:
    """Return three classes of noisy waves; `drift` is the effect of another microphone."""
    y = torch.randint(3, (n,))
    t = torch.linspace(0, 6.28, 64)
    x = torch.sin((1 + y[:, None]) * t + torch.rand(n, 1)) + 0.3 * torch.randn(n, 64)
    return TensorDataset((x * (1 + drift) + drift).unsqueeze(1), y)


model = nn.Sequential(
    nn.Conv1d(1, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(),
    nn.AdaptiveAvgPool1d(4), nn.Flatten(),
    nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3),
)  # fmt: skip

# Name the layer where noise enters, and the last hidden layer.
net = unseen.UncertaintyGuided(model, sites=["0"], embedding="6", lr=1e-3)
unseen.fit(
    net,
    DataLoader(waves(512), 32, shuffle=True),
    steps=150,
    held_out=DataLoader(waves(256), 64),
)

for name, drift in (("source", 0.0), ("new microphone", 0.8)):
    x, y = waves(128, drift).tensors
    logits, per_sample = net.predict_with_uncertainty(x)
    score, alarm = net.domain_score(x), net.alarm(x, false_alarm_rate=0.01)
    accuracy = float((logits.argmax(1) == y).float().mean())
    print(
        f"{name}: accuracy {accuracy:.2f}, mean sample score {per_sample.mean():.3f},"
        f" domain score {score:.3f}{', ALARM' if alarm else ''}"
    )

with tempfile.TemporaryDirectory() as folder:
    net.save(folder)
    loaded = unseen.load(folder, model)  # reads weights and settings; runs no code

x, y = waves(30, drift=0.8).tensors
adapted = fine_tune(loaded.model, x, y, steps=100, lr=1e-3)
x, y = waves(256, drift=0.8).tensors
accuracy = float((adapted(x).argmax(1) == y).float().mean())
print(f"after ten labels per class: accuracy {accuracy:.2f}")
