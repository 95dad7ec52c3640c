"""A monitor of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unseen.api import Task
from unseen.detection.monitor import DomainMonitor
from unseen.experiments.run_estimator import estimator_of
from unseen.tasks import task_named
from unseen.training.run import Run


def open_monitor(
    folder: str | Path,
    task: Task | str,
    *,
    verdicts: bool = False,
    device: str = "auto",
    **settings: Any,
) -> DomainMonitor:
    """Make a DomainMonitor of a finished run; the run's held-out samples are dropped from memory.

    Args:
        verdicts: judge every batch; the run's accuracy estimator is fitted if there is none. A
            run without classes has alarms only.
        settings: keyword arguments of DomainMonitor.
    """
    run, chosen = Run(folder), task_named(task) if isinstance(task, str) else task
    net = run.load(chosen, device)
    if verdicts and net.objective.classifies:  # accuracy is not defined otherwise
        settings["estimator"] = estimator_of(run, chosen, net)
    monitor = DomainMonitor(net, **settings)
    net.detector.forget_held_out()
    return monitor
