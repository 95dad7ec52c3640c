"""Make a model learned from a single source hold up in domains it has never seen, and know when it will not."""

from __future__ import annotations

from pathlib import Path

from torch import nn

__version__ = "0.1.0"

from unseen.api import Batch, Domain, Method, Task
from unseen.detection.accuracy import AccuracyEstimator, estimate_accuracy
from unseen.detection.monitor import DomainMonitor
from unseen.errors import UnseenError
from unseen.methods import ERM, METHODS, UncertaintyGuided
from unseen.tasks import TASKS
from unseen.training.checkpoint import load_method
from unseen.training.fit import calibrate, fit


def load(folder: str | Path, model: nn.Module) -> Method:
    """A method saved with `net.save(folder)` or by `unseen train`, around your model; runs no code from the folder."""
    return load_method(Path(folder), model)


__all__ = [
    "ERM",
    "METHODS",
    "TASKS",
    "AccuracyEstimator",
    "Batch",
    "Domain",
    "DomainMonitor",
    "Method",
    "Task",
    "UncertaintyGuided",
    "UnseenError",
    "calibrate",
    "estimate_accuracy",
    "fit",
    "load",
]
