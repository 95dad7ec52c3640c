"""What a search measures on: synthetic shifts of held-out source data, never a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import fsum

import torch
from torch.utils.data import Dataset, TensorDataset

from unseen.api import Domain, Method, Task
from unseen.detection.synthetic_shifts import shifts_for
from unseen.errors import UnseenError
from unseen.tasks import MODULES, task_named, variants_of
from unseen.training.batches import batches_of, load_split, subsample
from unseen.training.evaluation import evaluate_metric

GENERIC = "generic"
# The task whose unseen domains are synthetic shifts of a benchmark's source.
TWINS = {
    "digits": "digits_shifts",
    "cifar10_c": "cifar_shifts",
    "amazon_reviews": "amazon_shifts",
    "google_commands": "speech_shifts",
}


def is_twin(word: str) -> bool:
    """Return whether a task's unseen domains are synthetic shifts of its source."""
    name = word.partition("/")[0]
    return name in MODULES and MODULES[name].__name__.startswith("unseen.tasks.tuning.")


def tuning_word(word: str, shifts: str | None) -> tuple[str, bool]:
    """Return the task to train on, and whether its unseen domains are the shifts to measure on.

    Args:
        shifts: "generic", or a twin; by default the task's twin, or generic shifts if it has none.
    """
    name, slash, variant = word.partition("/")
    if shifts is not None and shifts != GENERIC:
        if not is_twin(shifts):
            known = ", ".join(TWINS.values())
            raise UnseenError(
                f"--shifts {shifts}: its unseen domains are for evaluation only, settings must not "
                f"be chosen on them; use {known} or {GENERIC}"
            )
        if shifts.partition("/")[0] not in (name, TWINS.get(name)):
            raise UnseenError(f"--shifts {shifts} are not shifts of the source of {word}")
        return shifts, True
    if is_twin(word):
        if shifts == GENERIC:
            raise UnseenError(f"{word} has shifts of its own: leave out --shifts {GENERIC}")
        return word, True
    twin = TWINS.get(name)
    if shifts is None and twin is not None and (not slash or variant in variants_of(twin)):
        return f"{twin}{slash}{variant}", True
    return word, False


def without_targets(task: Task) -> Task:
    """Return the task with unseen domains that refuse to load."""

    def refuse(split: str) -> Dataset:
        raise UnseenError(f"{task.name}: a search for settings must not load unseen domains")

    return replace(task, targets=tuple(Domain(d.name, refuse) for d in task.targets))


def tuning_task(word: str, on_targets: bool) -> Task:
    """Return the task to train on; only a twin keeps its unseen domains."""
    if on_targets and not is_twin(word):
        raise UnseenError(f"{word}: settings must not be chosen on unseen domains of a benchmark")
    task = task_named(word)
    return task if on_targets else without_targets(task)


@dataclass(frozen=True)
class ShiftedSource:
    """Data sets by the name of their shift."""

    data: dict[str, Dataset]

    @classmethod
    def of(cls, task: Task, on_targets: bool, samples: int) -> ShiftedSource:
        """Load the shifts of a task: those of a twin, or generic ones of the source's val split."""
        if on_targets:
            loaded = {d.name: subsample(load_split(d, "test"), samples) for d in task.targets}
            return cls(loaded)
        return cls(dict(_generic(task, samples)))

    def measure(self, net: Method, metric: str, ignore_label: int) -> dict[str, float]:
        """Return the metric under every shift, and their average."""
        values = {
            name: evaluate_metric(metric, net, data, ignore_label).value  # type: ignore[arg-type]
            for name, data in self.data.items()
        }
        return {"average": fsum(values.values()) / len(values), **values}


def _generic(task: Task, samples: int) -> Iterator[tuple[str, Dataset]]:
    batches = list(batches_of(subsample(load_split(task.source, "val"), samples)))
    x = tuple(torch.cat(t) for t in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches])
    for kind, strengths in shifts_for(x, label_maps=y.dim() > 1).items():
        for number, shift in enumerate(strengths, start=1):
            yield f"{kind} {number}", TensorDataset(*shift(x, torch.Generator().manual_seed(0)), y)
