"""Show shifts that alarm without harm, shifts that harm without alarm, and label shift.

python examples/when_the_score_misleads.py [RUN]

RUN is the output of `unseen train mini_digits --out RUN`; its verdicts are shown too, which takes a
minute more the first time. Without it, a small model is trained first, in about half a minute.
"""

from __future__ import annotations

import sys
import tempfile

import torch

from unseen.detection.synthetic_shifts import add_noise, darken, rotate
from unseen.experiments.run_estimator import estimator_of
from unseen.tasks import task_named
from unseen.training.run import Run
from unseen.training.train import train

QUICK = {
    "steps": 30,
    "batch_size": 16,
    "draws": 1,
    "warmup": 10,
    "lr": 1e-3,
    "adversary": {"rounds": 1, "steps": 3},
}

task = task_named("mini_digits")
x, y = task.source.load("test").tensors  # held-out handwritten digits
g = torch.Generator().manual_seed(0)
with tempfile.TemporaryDirectory() as scratch:
    folder = sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/run"
    if len(sys.argv) == 1:
        train(task, "uncertainty_guided", folder, overrides=QUICK, progress=False)
    net = Run(folder).load(task)
    if len(sys.argv) > 1:
        estimator_of(Run(folder), task, net)  # fitted, or read from the run

few = (y == 1) | (y == 7)
exchanged = torch.where(y == 1, 7, torch.where(y == 7, 1, y))
everything = torch.ones_like(few)
cases = {  # shifted images, their labels, and which of the original samples they are
    "none": (x, y, everything),
    "half the brightness": (darken(x, 0.5, g), y, everything),
    "slight noise": (add_noise(x, 0.1, g).clamp(0, 1), y, everything),
    "rotated by 25 degrees": (rotate(x, 25, g), y, everything),
    "rotated by 60 degrees": (rotate(x, 60, g), y, everything),
    "only ones and sevens": (x[few], y[few], few),
    "labels of ones and sevens exchanged": (x, exchanged, everything),
}
print(f"{'shift':36s} accuracy  before   score  threshold")
correct = (net.predict(x).argmax(1) == y).float()
for name, (shifted, labels, kept) in cases.items():
    accuracy = float((net.predict(shifted).argmax(1) == labels).float().mean())
    before = float(correct[kept].mean())
    score, threshold = net.domain_score(shifted), net.threshold(len(shifted), 0.01)
    verdict = ""
    if net.has_accuracy_estimator:
        v = net.verdict(shifted)
        low, high = (100 * end for end in v.interval)
        verdict = f"{100 * v.predicted_accuracy:.0f} ({low:.0f} to {high:.0f})  {v.verdict}"
    print(
        f"{name:36s} {100 * accuracy:8.1f} {100 * before:7.1f} {score:7.4f} {threshold:10.4f}"
        f"  {'ALARM' if score > threshold else '':5s}  {verdict}"
    )
