"""A stream that drifts, watched without labels and in constant memory.

python examples/score_a_stream.py [RUN]

RUN is a folder of `unseen train mini_digits --out RUN`; without one, a small model is trained first, in about a minute.
"""

from __future__ import annotations

import sys
import tempfile

import torch

import unseen
from unseen.detection.synthetic_shifts import on_texture
from unseen.tasks import task_named
from unseen.training.train import train

BATCH = 50
QUICK = {"steps": 50, "draws": 1, "warmup": 15, "ascent_rounds": 3, "ascent_steps": 5, "lr": 1e-3}

task = task_named("mini_digits")
source = task.source.load("test").tensors[0]  # handwritten digits that were not trained on
generator = torch.Generator().manual_seed(0)


def stream():
    """Batches of the source, then a background too faint for one batch to tell, then one that grows."""
    for weight in [0.0] * 5 + [0.02] * 7 + [0.05, 0.1, 0.3]:
        x = source[torch.randperm(len(source), generator=generator)[:BATCH]]
        yield weight, on_texture(x, weight, generator)


with tempfile.TemporaryDirectory() as scratch:
    folder = sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/run"
    if len(sys.argv) == 1:
        train(task, "uncertainty_guided", folder, overrides=QUICK, progress=False)
    # Thresholds are made here, from held-out source data that came with the run; the monitor keeps none of it.
    monitor = unseen.DomainMonitor.from_run(
        folder, task, batch=BATCH, false_alarm_rate=0.01, memory=5
    )

print("batch  background   score  threshold   slow score  threshold")
for weight, x in stream():
    r = monitor.update(x)
    told = " and ".join(
        word
        for word, raised in (("this batch", r.batch_alarm), ("the last ones", r.slow_alarm))
        if raised
    )
    row = f"{r.batch:5d} {100 * weight:10.0f}% {r.score:7.3f} {r.threshold:10.3f} {r.slow_score:12.3f} {r.slow_threshold:10.3f}"
    print(f"{row}  {'ALARM: ' + told if told else ''}")
print(f"{sum(r.alarm for r in monitor.history)} of {monitor.seen} batches alarmed")
