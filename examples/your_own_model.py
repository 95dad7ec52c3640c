"""Your own model and data: train it, predict, ask how sure it is, save it, load it, adapt it.

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


def signals(n: int, drift: float = 0.0) -> TensorDataset:
    """Three kinds of waves with noise, one channel, 64 samples long; `drift` is what another microphone adds."""
    y = torch.randint(3, (n,))
    t = torch.linspace(0, 6.28, 64)
    x = torch.sin((1 + y[:, None]) * t + torch.rand(n, 1)) + 0.3 * torch.randn(n, 64)
    return TensorDataset((x * (1 + drift) + drift).unsqueeze(1), y)


model = nn.Sequential(
    nn.Conv1d(1, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
    nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3),
)  # fmt: skip

# Any nn.Module: name the layer where noise enters, and the last hidden layer.
net = unseen.UncertaintyGuided(model, sites=["0"], embedding="6", lr=1e-3)
unseen.fit(
    net,
    DataLoader(signals(512), 32, shuffle=True),
    steps=150,
    held_out=DataLoader(signals(256), 64),
)

for name, drift in (("the source", 0.0), ("a new microphone", 0.8)):
    x, y = signals(128, drift).tensors
    logits, doubt = net.predict_with_uncertainty(x)
    score, alarm = net.domain_score(x), net.alarm(x, false_alarm_rate=0.01)
    right = float((logits.argmax(1) == y).float().mean())
    print(
        f"{name}: accuracy {right:.2f}, doubt {doubt.mean():.3f}, domain score {score:.3f}{', ALARM' if alarm else ''}"
    )

with tempfile.TemporaryDirectory() as folder:
    net.save(folder)
    again = unseen.load(folder, model)  # the weights come from the file, no code does

x, y = signals(30, drift=0.8).tensors
adapted = fine_tune(again.model, x, y, steps=100, lr=1e-3)
x, y = signals(256, drift=0.8).tensors
print(f"after ten labels a class: accuracy {float((adapted(x).argmax(1) == y).float().mean()):.2f}")
