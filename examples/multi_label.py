"""Find which of three shapes a picture shows, any number of them, and notice a new camera.

    python examples/multi_label.py

Each picture has three labels, 0 or 1, and binary cross-entropy as its loss.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen.training.evaluation import evaluate_metric


def pictures(n: int, seed: int, glare: float = 0.0) -> TensorDataset:
    """16 x 16 pixels with a horizontal bar, a vertical bar and a square, each with chance 1/2."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, 3, generator=g) < 0.5).float()
    x = 0.2 * torch.rand(n, 1, 16, 16, generator=g)
    x[:, :, 3:5] += 0.5 * y[:, 0, None, None, None]
    x[:, :, :, 11:13] += 0.5 * y[:, 1, None, None, None]
    x[:, :, 8:14, 2:8] += 0.5 * y[:, 2, None, None, None]
    return TensorDataset((x + glare * torch.rand(n, 1, 1, 16, generator=g)).clamp(0, 1), y)


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(8 * 7 * 7, 32), nn.ReLU(), nn.Linear(32, 3),
)  # fmt: skip
net = unseen.UncertaintyGuided(model, sites=["0"], embedding="4", loss="bce", lr=1e-3, draws=2)

loader = DataLoader(pictures(400, seed=0), 40, shuffle=True)
held_out = DataLoader(pictures(300, seed=1), 60)
unseen.fit(net, loader, steps=150, held_out=held_out, progress=False)

for name, glare in (("this camera", 0.0), ("another camera", 0.8)):
    data = pictures(200, seed=2, glare=glare)
    precision = evaluate_metric("map", net, data)
    verdict = net.verdict(data.tensors[0])
    by_shape = ", ".join(f"{value:.2f}" for value in precision.per_class)
    print(f"{name}: mean average precision {precision.value:.2f} ({by_shape}); {verdict.verdict}"
          f"{', ALARM' * verdict.alarm}")  # fmt: skip
