"""Train on one source domain, generalize to unseen domains, and detect when a model fails."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from torch import nn

from unseen import _deprecated
from unseen.api import Batch, Domain, Method, Task
from unseen.checks import check_path
from unseen.detection.accuracy import AccuracyEstimator, estimate_accuracy
from unseen.detection.monitor import DomainMonitor
from unseen.errors import UnseenError
from unseen.experiments.monitor_run import open_monitor
from unseen.methods import ERM, METHODS, UncertaintyGuided
from unseen.tasks import TASKS
from unseen.training.checkpoint import load_method
from unseen.training.fit import calibrate, fit

try:
    __version__ = metadata.version("unseen")
except metadata.PackageNotFoundError:  # a source tree on sys.path, not installed
    __version__ = "unknown"


def load(folder: str | Path, model: nn.Module, **functions: Any) -> Method:
    """Load a method that `net.save(folder)` or `unseen train` has saved, around your model.

    No code from the folder is run. A setting that is a function, such as `output`, is not saved:
    give it again.
    """
    return load_method(check_path("folder", folder), model, functions)


def __getattr__(name: str) -> Any:
    return _deprecated.module_attribute(__name__, name)


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
    "open_monitor",
]
