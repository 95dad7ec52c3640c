"""Which runs belong together: those that differ by their seed alone; and what tells the groups apart."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unseen.report.runs import FinishedRun
from unseen.report.statistics import mean_and_std

# They decide what is written down and how much memory is used, not what is learned.
WITHOUT_EFFECT = ("log_every", "checkpoint_every", "keep", "chunk", "ignore_label")
USUAL = (None, "flip_crop")  # augmentations that a task may train with by itself
ORDER = (
    "erm",
    "mixup",
    "cutout",
    "autoaugment",
    "pgd",
    "par",
    "self_super",
    "jigen",
    "gud",
    "m_ada",
    "bnn",
    "mc_dropout",
    "uncertainty_guided",
)
OURS = "uncertainty_guided"


@dataclass(frozen=True)
class Group:
    """Runs of one task that differ by their seed alone."""

    runs: list[FinishedRun]
    differs: dict[
        str, Any
    ]  # from the plainest group of the same method and task; empty for that one itself

    @property
    def method(self) -> str:
        return str(self.runs[0].config["method"])

    @property
    def label(self) -> str:
        return ", ".join(
            [self.method, *(f"{name} {said(value)}" for name, value in self.differs.items())]
        )

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @cached_property
    def domains(self) -> list[str]:
        """The unseen domains that all of its runs were examined on."""
        return [d for d in self.runs[0].domains if all(d in run.figures for run in self.runs)]

    def over(self, domains: Sequence[str], step: int | None = None) -> list[float]:
        """Each run's mean over these domains, of the last checkpoint or of an earlier step."""
        by_run = [run.figures if step is None else run.examined.get(step, {}) for run in self.runs]
        return [
            math.fsum(f[d] for d in domains) / len(domains)
            for f in by_run
            if domains and all(d in f for d in domains)
        ]

    def mean_and_std(self, domains: Sequence[str]) -> tuple[float, float]:
        return mean_and_std(self.over(domains))


@dataclass(frozen=True)
class TaskRuns:
    """All groups of one task and variant, plainly trained ones first."""

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
        return {"miou": "mIoU"}.get(self.first.metric, self.first.metric)

    @property
    def source(self) -> str:
        return self.first.source

    @cached_property
    def domains(self) -> list[str]:
        """The unseen domains that every run was examined on: averages over these alone can be compared."""
        return [d for d in self.first.domains if all(d in group.domains for group in self.groups)]

    def of(self, method: str) -> list[Group]:
        return [group for group in self.groups if group.method == method]


def settings_of(run: FinishedRun) -> dict[str, Any]:
    """Everything that could change what a run learns, its seed apart."""
    config = run.config
    told = {**config["loop"], **config.get("model", {}), **config["settings"]}
    return {name: value for name, value in told.items() if name not in WITHOUT_EFFECT}


def differences(settings: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """What one set of settings has that the other has not, or has otherwise."""
    names = [*settings, *(name for name in plain if name not in settings)]
    return {
        n: settings.get(n)
        for n in names
        if (n in settings) != (n in plain) or settings.get(n) != plain.get(n)
    }


def said(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " and ".join(map(str, value))
    return (
        {None: "none", True: "on", False: "off"}[value]
        if value is None or isinstance(value, bool)
        else str(value)
    )


def by_task(runs: Sequence[FinishedRun], left_out: list[str] | None = None) -> list[TaskRuns]:
    """The runs by task and variant, and there by what they were told; what cannot be compared goes to `left_out`."""
    tasks: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    tasks = {
        name: _comparable(members, [] if left_out is None else left_out)
        for name, members in tasks.items()
    }
    found = []
    for (task, variant), members in sorted(tasks.items()):
        groups = [group for method in sorted({r.config["method"] for r in members}, key=_rank)
                  for group in _groups([r for r in members if r.config["method"] == method])]  # fmt: skip
        found.append(TaskRuns(task, variant, groups))
    return found


def _comparable(runs: Sequence[FinishedRun], left_out: list[str]) -> list[FinishedRun]:
    """Without runs that were examined on fewer domains than others, or that are another's twin."""
    every = set(max(runs, key=lambda run: len(run.figures)).figures)
    seen: dict[str, FinishedRun] = {}
    for run in runs:
        key = json.dumps([run.config["method"], run.seed, settings_of(run)], sort_keys=True)
        if missing := sorted(every - set(run.figures)):
            left_out.append(
                f"{run.folder}: not examined on {', '.join(missing)}, as others were: unseen evaluate does it"
            )
        elif key in seen:
            left_out.append(
                f"{run.folder}: the same method, settings and seed as {seen[key].folder}"
            )
        else:
            seen[key] = run
    return list(seen.values())


def _rank(method: str) -> tuple[int, str]:
    return (
        ORDER.index(method) if method in ORDER else len(ORDER) - 1,
        method,
    )  # one of the user's own before ours


def _groups(runs: Sequence[FinishedRun]) -> list[Group]:
    """Groups of one method; the plain one is as its preset says, the others name what they were told beside it."""
    same: dict[str, list[FinishedRun]] = {}
    for run in runs:
        same.setdefault(json.dumps(settings_of(run), sort_keys=True), []).append(run)
    members = [sorted(group, key=lambda run: run.seed) for _, group in sorted(same.items())]
    told = _told([group[0] for group in members])
    if told is None or len({json.dumps(one, sort_keys=True) for one in told}) < len(told):
        told = _apart([settings_of(group[0]) for group in members])
    groups = [Group(group, differs) for group, differs in zip(members, told, strict=True)]
    return sorted(groups, key=lambda group: (len(group.differs), group.label))


def _told(runs: Sequence[FinishedRun]) -> list[dict[str, Any]] | None:
    """What each was told beside its preset, without what all were told, as a grid's budget is; None if one did not record it."""
    if not all(isinstance(run.config.get("overrides"), dict) for run in runs):
        return None
    told = [
        {k: v for k, v in run.config["overrides"].items() if k not in WITHOUT_EFFECT}
        for run in runs
    ]
    shared = {
        k
        for k, v in told[0].items()
        if k != "augment" and all(one.get(k, runs) == v for one in told)
    }
    ignored = shared if len(runs) > 1 else {"steps", "batch"}
    presets = [run.config.get("preset", "fast") for run in runs]
    named = [
        {"preset": preset} if len(set(presets)) > 1 and preset != "fast" else {}
        for preset in presets
    ]
    return [
        {**preset, **{k: v for k, v in one.items() if k not in ignored}}
        for preset, one in zip(named, told, strict=True)
    ]


def _apart(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How settings differ from the plainest of them: not augmented, and with the fewest differences from all others."""
    most = [sum(len(differences(one, other)) for other in told) for one in told]
    plainest = min(
        range(len(told)), key=lambda i: (told[i].get("augment") not in USUAL, most[i], i)
    )
    found = [differences(mine, told[plainest]) for mine in told]
    if (augment := told[plainest].get("augment")) not in USUAL:
        found = [
            {"augment": mine.get("augment", augment), **differs}
            for mine, differs in zip(told, found, strict=True)
        ]
    return found


def sweep(groups: Sequence[Group], name: str) -> list[list[Group]]:
    """Sets of groups that differ in this one number alone, each in its order, where there are at least two values of it."""
    alike: dict[str, list[Group]] = {}
    for group in groups:
        settings = settings_of(group.runs[0])
        if isinstance(settings.get(name), int | float):
            others = {k: v for k, v in settings.items() if k != name}
            alike.setdefault(json.dumps(others, sort_keys=True), []).append(group)
    sets = [
        sorted(same, key=lambda g: settings_of(g.runs[0])[name])
        for same in alike.values()
        if len(same) > 1
    ]
    return sorted(sets, key=len, reverse=True)
