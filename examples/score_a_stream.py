"""Monitor a drifting stream without labels, in constant memory.

python examples/score_a_stream.py [RUN]

RUN is the output of `unseen train mini_digits --out RUN`. Without it, a small model is trained
first, in about half a minute.
"""

from __future__ import annotations

import sys
import tempfile

import torch

from unseen.detection.synthetic_shifts import blend_texture
from unseen.experiments.monitor_run import open_monitor
from unseen.tasks import task_named
from unseen.training.train import train

BATCH = 50
QUICK = {
    "steps": 30,
    "batch_size": 16,
    "draws": 1,
    "warmup": 10,
    "lr": 1e-3,
    "adversary": {"rounds": 1, "steps": 3},
}

task = task_named("mini_digits")
source = task.source.load("test").tensors[0]  # held-out handwritten digits
generator = torch.Generator().manual_seed(0)


def stream():
    """Yield source batches, then a faint background texture, then a growing one."""
    for weight in [0.0] * 5 + [0.02] * 7 + [0.05, 0.1, 0.3]:
        x = source[torch.randperm(len(source), generator=generator)[:BATCH]]
        yield weight, blend_texture(x, weight, generator)


with tempfile.TemporaryDirectory() as scratch:
    folder = sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/run"
    if len(sys.argv) == 1:
        train(task, "uncertainty_guided", folder, overrides=QUICK, progress=False)
    # Thresholds come from the held-out source samples of the run; the monitor keeps none of them.
    monitor = open_monitor(folder, task, batch=BATCH, false_alarm_rate=0.01, memory=5)

print("batch  background   score  threshold   slow score  threshold")
alarms = 0
for number, (weight, x) in enumerate(stream()):
    reading = monitor.update(x)
    alarms += reading.alarm
    reasons = [
        name
        for name, alarm in (("this batch", reading.batch_alarm), ("drift", reading.slow_alarm))
        if alarm
    ]
    print(
        f"{number:5d} {100 * weight:10.0f}% {reading.score:7.3f} {reading.threshold:10.3f}"
        f" {reading.slow_score:12.3f} {reading.slow_threshold:10.3f}"
        f"  {'ALARM: ' + ' and '.join(reasons) if reasons else ''}"
    )
print(f"{alarms} of {number + 1} batches raised the alarm")
