"""A monitor of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unseen.api import Task
from unseen.detection.monitor import DomainMonitor
from unseen.tasks import task_named
from unseen.training.run import Run


def open_monitor(
    folder: str | Path, task: Task | str, *, device: str = "auto", **settings: Any
) -> DomainMonitor:
    """Make a DomainMonitor of a finished run; the run's held-out samples are dropped from memory.

    Args:
        settings: keyword arguments of DomainMonitor.
    """
    net = Run(folder).load(task_named(task) if isinstance(task, str) else task, device)
    monitor = DomainMonitor(net, **settings)
    net.detector.forget_held_out()
    return monitor
