"""Shifts that alarm and do no harm, shifts that harm and do not alarm, and other classes than before.

python examples/when_the_score_misleads.py [RUN]

RUN is a folder of `unseen train mini_digits --out RUN`; without one, a small model is trained first, in about a minute.
"""

from __future__ import annotations

import sys
import tempfile

import torch

from unseen.detection.synthetic_shifts import darker, noisier, turned
from unseen.tasks import task_named
from unseen.training.run import Run
from unseen.training.train import train

QUICK = {"steps": 50, "draws": 1, "warmup": 15, "ascent_rounds": 3, "ascent_steps": 5, "lr": 1e-3}

task = task_named("mini_digits")
x, y = task.source.load("test").tensors  # handwritten digits that were not trained on
g = torch.Generator().manual_seed(0)
with tempfile.TemporaryDirectory() as scratch:
    folder = sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/run"
    if len(sys.argv) == 1:
        train(task, "uncertainty_guided", folder, overrides=QUICK, progress=False)
    net = Run(folder).load(task)

few = (y == 1) | (y == 7)
exchanged = torch.where(y == 1, 7, torch.where(y == 7, 1, y))
cases = {
    "the source, held out": (x, y),
    "half the light": (darker(x, 0.5, g), y),
    "some grain": (noisier(x, 0.1, g).clamp(0, 1), y),
    "turned by 25 degrees": (turned(x, 25, g), y),
    "turned by 60 degrees": (turned(x, 60, g), y),
    "only ones and sevens": (x[few], y[few]),
    "ones and sevens exchange labels": (x, exchanged),
}
print(f"{'':32s} accuracy  of the same classes, unshifted   score  threshold")
right = net.predict(x).argmax(1) == y
for name, (shifted, labels) in cases.items():
    accuracy = float((net.predict(shifted).argmax(1) == labels).float().mean())
    before = float(right[few].float().mean() if len(labels) < len(y) else right.float().mean())
    score, threshold = net.domain_score(shifted), net.threshold(len(shifted), 0.01)
    told = "ALARM" if score > threshold else ""
    print(
        f"{name:32s} {100 * accuracy:8.1f} {100 * before:33.1f} {score:7.4f} {threshold:10.4f}  {told}"
    )
