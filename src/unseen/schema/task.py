"""Checks of a task and of its domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.checks import check_choice, check_int, check_type
from unseen.errors import UnseenError

# The metrics that a model trained with each loss can be measured by.
METRICS_OF = {
    "cross_entropy": ("accuracy", "miou"),
    "bce": ("map",),
    "mse": ("mae",),
    "huber": ("mae",),
}


def check_domain(domain: Any) -> None:
    """Raise unless a domain has a name and a function that loads a split."""
    _check_name("the name of a domain", domain.name)
    if not callable(domain.load):
        raise UnseenError(
            f"load of domain {domain.name} must be a function from the name of a split to a data "
            f"set, not {domain.load!r}"
        )


def check_task(task: Any, domain: type, metrics: tuple[str, ...], places: tuple[str, ...]) -> None:
    """Raise unless the fields of a task have their types and fit together."""
    _check_name("the name of a task", task.name)
    where = f"task {task.name}"
    check_type(f"{where}: source", task.source, domain, "a Domain")
    check_type(f"{where}: targets", task.targets, (tuple, list), "a tuple of Domains")
    for target in task.targets:
        check_type(f"{where}: every target", target, domain, "a Domain")
    check_type(f"{where}: record", task.record, Mapping, "a table of entries")
    if not task.targets and not task.record:  # a user's files may all be of the source
        raise UnseenError(f"{where} has no targets: it needs at least one")
    names = [task.source.name, *(d.name for d in task.targets)]
    if len(set(names)) < len(names):
        raise UnseenError(f"{where}: two domains have one name: {', '.join(names)}")
    check_int(f"{where}: classes", task.classes, 1)
    check_int(f"{where}: ignore_label", task.ignore_label)
    if not callable(task.model) or (
        hasattr(task.model, "parameters") and not isinstance(task.model, type)
    ):
        raise UnseenError(
            f"{where}: model must be a function or class that makes a model, not "
            f"{type(task.model).__name__}"
        )
    check_type(f"{where}: sites", task.sites, (tuple, list, str), "names of layers")
    check_type(f"{where}: embedding", task.embedding, (str, type(None)), "the name of a layer")
    check_type(f"{where}: variant", task.variant, str, "a name")
    check_type(f"{where}: presets", task.presets, Mapping, "a table of presets")
    for name, preset in task.presets.items():
        check_type(f"{where}: preset {name}", preset, Mapping, "a table of settings")
    if task.metric not in metrics:
        raise UnseenError(f'{where}: no metric "{task.metric}", only {metrics}')
    if isinstance(task.loss, str):
        check_choice(f"{where}: loss", task.loss, tuple(METRICS_OF))
        fitting = METRICS_OF[task.loss]
        if task.metric not in fitting:
            raise UnseenError(
                f"{where}: loss {task.loss} goes with metric {' or '.join(fitting)}, not "
                f"{task.metric}"
            )
    elif not callable(task.loss):
        raise UnseenError(f"{where}: loss must be a name or a function, not {task.loss!r}")
    check_choice(f"{where}: score_at", task.score_at, places)
    check_type(f"{where}: class_names", task.class_names, (tuple, list), "a tuple of names")
    if len(task.class_names) not in (0, task.classes):
        n = len(task.class_names)
        raise UnseenError(f"{where} has {task.classes} classes but {n} names")


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise UnseenError(f"{what} must be a string that is not empty, not {name!r}")
