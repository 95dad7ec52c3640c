"""The scorer of a finished run, and what an exported model records of one."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch

from unseen.api import Task
from unseen.deploy.run_scorer import RunScorer
from unseen.errors import UnseenError
from unseen.experiments.run_estimator import estimator_of
from unseen.functional.verdict import RATE
from unseen.training.batches import load_split, take
from unseen.training.run import Run

log = logging.getLogger("unseen")

LABELS = {"accuracy": "classes", "map": "several", "mae": "number", "miou": "map"}  # by metric
EXAMPLES = 3


def scorer_of_run(
    run: Run, task: Task, *, rate: float = RATE, device: str = "auto", verdicts: bool = True
) -> RunScorer:
    """Return the scorer of a run.

    Without its estimator, which needs the source's data once, verdicts are by the score alone.
    """
    net = run.load(task, device)
    estimator = None
    if verdicts and net.objective.classifies:  # accuracy is not defined otherwise
        try:
            estimator = estimator_of(run, task, net)
        except UnseenError as error:
            log.warning("no predicted accuracy, verdicts are by the score alone: %s", error)
    return RunScorer(
        net,
        estimator,
        classes=task.class_names or [str(c) for c in range(task.classes)],
        about=about_run(run, task),
        place=str(run.folder),
        rate=rate,
        example=partial(example_of, task),
    )


def about_run(run: Run, task: Task) -> dict[str, Any]:
    """Return what an exported model records of its run."""
    config = run.config
    return {
        "task": task.name,
        "variant": task.variant,
        "run": config["run"],
        "labels": LABELS[task.metric],
        "preprocessing": config.get("data") or {"task": task.name, "split": "as the task reads it"},
    }


def example_of(task: Task) -> Any:
    """Return inputs of a few held-out source samples."""
    data = load_split(task.source, "val")
    count = min(EXAMPLES, len(data))  # type: ignore[arg-type]
    return take(data, torch.arange(count)).x
