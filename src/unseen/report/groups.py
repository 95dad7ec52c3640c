"""Group runs that differ only in their seed, and label each group by its settings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unseen.report.runs import FinishedRun
from unseen.report.settings import WITHOUT_EFFECT, differences, format_value
from unseen.report.statistics import mean_and_std
from unseen.report.units import NAMES, is_error, scale_of, with_unit

DEFAULT_AUGMENTATIONS = (None, "flip_crop")  # a task may train with these by default
ORDER = (
    "erm", "mixup", "cutout", "autoaugment", "pgd", "par", "self_super", "jigen", "gud", "m_ada",
    "bnn", "mc_dropout", "uncertainty_guided",
)  # fmt: skip
OURS = "uncertainty_guided"


@dataclass(frozen=True)
class Group:
    """Runs of one task that differ only in their seed."""

    runs: list[FinishedRun]
    changes: dict[str, Any]  # settings that differ from the method's base group; empty for that one

    @property
    def method(self) -> str:
        return str(self.runs[0].config["method"])

    @property
    def label(self) -> str:
        changes = (f"{name} {format_value(value)}" for name, value in self.changes.items())
        return ", ".join([self.method, *changes])

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @cached_property
    def domains(self) -> list[str]:
        """The unseen domains that all of its runs were evaluated on."""
        return [d for d in self.runs[0].domains if all(d in run.values for run in self.runs)]

    def averages(self, domains: Sequence[str], step: int | None = None) -> list[float]:
        """Return each run's mean over the domains, at the last step or at an earlier one."""
        by_run = [
            run.values if step is None else run.evaluations.get(step, {}) for run in self.runs
        ]
        return [
            math.fsum(values[d] for d in domains) / len(domains)
            for values in by_run
            if domains and all(d in values for d in domains)
        ]

    def mean_and_std(self, domains: Sequence[str]) -> tuple[float, float]:
        return mean_and_std(self.averages(domains))


@dataclass(frozen=True)
class TaskRuns:
    """All groups of one task and variant, ERM first."""

    task: str
    variant: str
    groups: list[Group]

    @property
    def title(self) -> str:
        return self.task if self.variant == "default" else f"{self.task}/{self.variant}"

    @property
    def first(self) -> FinishedRun:
        return self.groups[0].runs[0]

    @property
    def metric(self) -> str:
        return NAMES.get(self.first.metric, self.first.metric)

    def with_unit(self, label: str) -> str:
        """Return the label of a column or an axis of the metric, with its unit."""
        return with_unit(label, self.first.metric)

    @property
    def scale(self) -> float:
        """The factor that values of the metric are shown with."""
        return scale_of(self.first.metric)

    @property
    def less_is_better(self) -> bool:
        return is_error(self.first.metric)

    @property
    def source(self) -> str:
        return self.first.source

    @property
    def source_label(self) -> str:
        """The source with its role; a source that is itself called "source" needs no addition."""
        return self.source if self.source == "source" else f"{self.source} (source)"

    @cached_property
    def domains(self) -> list[str]:
        """The unseen domains that every run was evaluated on: only these can be compared."""
        return [d for d in self.first.domains if all(d in group.domains for group in self.groups)]

    @property
    def ranking_domains(self) -> list[str]:
        """The domains that methods are ranked by: the source if none was evaluated."""
        return self.domains or [self.source]

    def of(self, method: str) -> list[Group]:
        return [group for group in self.groups if group.method == method]


def settings_of(run: FinishedRun) -> dict[str, Any]:
    """Return every setting that can change what a run learns, except its seed."""
    config = run.config
    settings = {**config["loop"], **config.get("model", {}), **config["settings"]}
    return {name: value for name, value in settings.items() if name not in WITHOUT_EFFECT}


def group_by_task(runs: Sequence[FinishedRun], left_out: list[str] | None = None) -> list[TaskRuns]:
    """Group runs by task and variant, then by settings; add incomparable runs to `left_out`."""
    by_task: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    tasks = []
    for (task, variant), members in sorted(by_task.items()):
        comparable = _comparable(members, [] if left_out is None else left_out)
        methods = sorted({run.config["method"] for run in comparable}, key=_rank)
        groups = [
            group
            for method in methods
            for group in _groups([run for run in comparable if run.config["method"] == method])
        ]
        tasks.append(TaskRuns(task, variant, groups))
    return tasks


def _comparable(runs: Sequence[FinishedRun], left_out: list[str]) -> list[FinishedRun]:
    """Return the runs without those evaluated on fewer domains and without duplicates."""
    every = set(max(runs, key=lambda run: len(run.values)).values)
    unique: dict[str, FinishedRun] = {}
    for run in runs:
        key = json.dumps([run.config["method"], run.seed, settings_of(run)], sort_keys=True)
        if missing := sorted(every - set(run.values)):
            left_out.append(
                f"{run.folder}: not evaluated on {', '.join(missing)}, as other runs are: "
                f"run `unseen evaluate {run.folder}`"
            )
        elif key in unique:
            left_out.append(
                f"{run.folder}: the same method, settings and seed as {unique[key].folder}"
            )
        else:
            unique[key] = run
    return list(unique.values())


def _rank(method: str) -> tuple[int, str]:
    # A user's own method comes before ours.
    return ORDER.index(method) if method in ORDER else len(ORDER) - 1, method


def _groups(runs: Sequence[FinishedRun]) -> list[Group]:
    """Return the groups of one method, labelled by their overrides or else by what differs."""
    by_settings: dict[str, list[FinishedRun]] = {}
    for run in runs:
        by_settings.setdefault(json.dumps(settings_of(run), sort_keys=True), []).append(run)
    members = [sorted(group, key=lambda run: run.seed) for _, group in sorted(by_settings.items())]
    changes = _overrides([group[0] for group in members])
    if changes is None or len({json.dumps(c, sort_keys=True) for c in changes}) < len(changes):
        changes = _differences_from_base([settings_of(group[0]) for group in members])
    groups = [Group(group, change) for group, change in zip(members, changes, strict=True)]
    return sorted(groups, key=lambda group: (len(group.changes), group.label))


def _overrides(runs: Sequence[FinishedRun]) -> list[dict[str, Any]] | None:
    """Return each run's overrides of its preset, except those that all share, such as a budget.

    None if a run did not record its overrides.
    """
    if not all(isinstance(run.config.get("overrides"), dict) for run in runs):
        return None
    overrides = [
        {k: v for k, v in run.config["overrides"].items() if k not in WITHOUT_EFFECT}
        for run in runs
    ]
    shared = {
        k
        for k, v in overrides[0].items()
        if k != "augment" and all(k in one and one[k] == v for one in overrides)
    }
    ignored = shared if len(runs) > 1 else {"steps", "batch_size"}
    presets = [run.config.get("preset", "fast") for run in runs]
    several = len(set(presets)) > 1
    return [
        {
            **({"preset": preset} if several and preset != "fast" else {}),
            **{k: v for k, v in one.items() if k not in ignored},
        }
        for preset, one in zip(presets, overrides, strict=True)
    ]


def _differences_from_base(settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how settings differ from the base: default augmentation, fewest differences."""
    totals = [sum(len(differences(one, other)) for other in settings) for one in settings]
    index = min(
        range(len(settings)),
        # Of equals, the one with more settings: fewer parts of the method are switched off.
        key=lambda i: (
            settings[i].get("augment") not in DEFAULT_AUGMENTATIONS,
            totals[i],
            -len(settings[i]),
            i,
        ),
    )
    base = settings[index]
    changes = [differences(one, base) for one in settings]
    if (augment := base.get("augment")) not in DEFAULT_AUGMENTATIONS:
        changes = [
            {"augment": one.get("augment", augment), **change}
            for one, change in zip(settings, changes, strict=True)
        ]
    return changes


def find_sweeps(groups: Sequence[Group], name: str) -> list[list[Group]]:
    """Return sets of at least two groups that differ only in one numeric setting, sorted by it."""
    alike: dict[str, list[Group]] = {}
    for group in groups:
        settings = settings_of(group.runs[0])
        if isinstance(settings.get(name), int | float):
            others = {k: v for k, v in settings.items() if k != name}
            alike.setdefault(json.dumps(others, sort_keys=True), []).append(group)
    sets = [
        sorted(same, key=lambda group: settings_of(group.runs[0])[name])
        for same in alike.values()
        if len(same) > 1
    ]
    return sorted(sets, key=len, reverse=True)
