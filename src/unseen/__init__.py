"""Train on one source domain, generalize to unseen domains, and detect when a model fails.

The names below are imported when they are first used: `unseen.deploy` and the command line's help
do not load torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen import _deprecated
from unseen.checks import check_path
from unseen.errors import UnseenError
from unseen.installed import package_version

if TYPE_CHECKING:
    from torch import nn

    from unseen.api import Batch, Domain, Method, Task
    from unseen.detection.accuracy import AccuracyEstimator, estimate_accuracy
    from unseen.detection.monitor import DomainMonitor
    from unseen.experiments.monitor_run import open_monitor
    from unseen.methods import ERM, METHODS, UncertaintyGuided
    from unseen.tasks import TASKS
    from unseen.training.fit import calibrate, fit

_PLACES = {
    "ERM": "methods",
    "METHODS": "methods",
    "TASKS": "tasks",
    "AccuracyEstimator": "detection.accuracy",
    "Batch": "api",
    "Domain": "api",
    "DomainMonitor": "detection.monitor",
    "Method": "api",
    "Task": "api",
    "UncertaintyGuided": "methods",
    "calibrate": "training.fit",
    "estimate_accuracy": "detection.accuracy",
    "fit": "training.fit",
    "open_monitor": "experiments.monitor_run",
}


def load(folder: str | Path, model: nn.Module, **functions: Any) -> Method:
    """Load a method that `net.save(folder)` or `unseen train` has saved, around your model.

    No code from the folder is run. A setting that is a function, such as `output`, is not saved:
    give it again.
    """
    from unseen.training.checkpoint import load_method

    return load_method(check_path("folder", folder), model, functions)


def __getattr__(name: str) -> Any:
    """Import a public name, a submodule, or a module of version 0.1."""
    if name in _PLACES:
        value = getattr(importlib.import_module(f"unseen.{_PLACES[name]}"), name)
    elif name == "__version__":
        value = package_version()
    elif name.startswith("_") or name in _deprecated.MODULES:
        return _deprecated.module_attribute(__name__, name)
    elif importlib.util.find_spec(f"unseen.{name}") is not None:
        return importlib.import_module(f"unseen.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "__version__"})


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
