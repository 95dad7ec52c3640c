"""What a run needs of its data before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from unseen.api import Method, Task
from unseen.training.batches import batches_of, load_split
from unseen.training.config import LoopSettings


@contextmanager
def random_state_kept(net: Method) -> Iterator[None]:
    """Leave the random numbers of the CPU and of the device of the method as they were."""
    devices = [net.device] if net.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


def find_layers(net: Method, task: Task) -> None:
    """Find the layers that the task leaves open, on its first samples."""
    if not net.is_built:
        with random_state_kept(net):  # a data set may draw random numbers
            few = next(batches_of(load_split(task.source, "train"), 2, limit=2))
        net.prepare(few.to(net.device))


def adjust_to_steps(net: Method, task: Task, loop: LoopSettings) -> None:
    """Fit the settings that were left open to a short training."""
    if task.record:  # own data; benchmarks keep the settings they were published with
        net.adjust_to(loop.steps)


def count_steps(task: Task, loop: LoopSettings) -> LoopSettings:
    """Return the settings with steps in place of epochs; a last, smaller batch is left out."""
    if loop.epochs is None:
        return loop
    samples = len(load_split(task.source, "train"))  # type: ignore[arg-type]
    steps = loop.epochs * max(1, samples // loop.batch_size)
    return loop.model_copy(update={"steps": steps, "epochs": None})
