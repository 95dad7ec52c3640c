"""Log a training to TensorBoard, Weights & Biases and MLflow. Nothing is uploaded.

python examples/loggers.py
"""

from __future__ import annotations

import torch
from torch import nn

import unseen
from unseen.training.loggers import MLflowLogger, TensorBoardLogger, WandbLogger

torch.manual_seed(0)
y = torch.arange(256) % 2
source = list(zip(torch.randn(8, 32, 4) + y.view(8, 32, 1), y.view(8, 32), strict=True))

net = unseen.ERM(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), lr=1e-2)
loggers = [TensorBoardLogger("logs"), WandbLogger("logs"), MLflowLogger("logs/mlruns")]
history = unseen.fit(net, source[:6], steps=30, held_out=source[6:], progress=False, logger=loggers)

print(f"average of the last ten losses: {sum(history['loss'][-10:]) / 10:.3f}")
for logger in loggers:
    print(f"{logger.name}: {logger.hint()}")
