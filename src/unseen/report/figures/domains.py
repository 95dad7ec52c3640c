"""Dots with error bars: methods on every domain, ablations."""

from __future__ import annotations

import math

import numpy as np

from unseen.report.figures.curves import left_out, main_groups
from unseen.report.figures.svg import INK, Drawing, Plate, capital, listed, series
from unseen.report.groups import OURS, Group, TaskRuns
from unseen.report.paper import ablation, ablation_figure

MOST_DOMAINS = 14  # rows that can be read; more of them are drawn as averages
MEANING = {
    "full": "the method as it is",
    "random_gaussian": "noise of a fixed standard Gaussian, nothing learned",
    "deterministic": "a learned shift μ without spread",
    "random_mu": "learned spread σ, random μ",
    "random_sigma": "learned μ, random spread σ",
    "no_mixup": "labels are not mixed",
    "random_mixup": "labels are mixed in random shares",
    "no_adversarial": "no adversary: noise is not driven away from the source",
    "no_meta": "perturbed data is learned from directly, without the meta step",
    "no_minimize_phi_p": "the noise heads only ascend",
}


def by_domain(task: TaskRuns) -> Plate | None:
    """The metric of every method on every domain."""
    rows = [task.source, *task.domains]
    if len(task.groups) < 2 or len(rows) > MOST_DOMAINS:
        return None
    groups, others = main_groups(task)
    drawing = Drawing(0.8 + 0.52 * (len(rows) + 1))
    at = np.arange(len(rows) + 1)
    for i, group in enumerate(groups):
        spread = [group.mean_and_std([d]) for d in rows] + [group.mean_and_std(task.domains)]
        means, stds = ([100 * v for v in part] for part in zip(*spread, strict=True))
        place = at + (i - (len(groups) - 1) / 2) * min(0.2, 0.72 / len(groups))
        drawing.axes.errorbar(
            means,
            place,
            xerr=stds if any(stds) else None,
            linestyle="none",
            elinewidth=1,
            **series(i),
        )
    drawing.axes.set_yticks(at, [f"{task.source} (source)", *task.domains, "average, unseen"])
    drawing.axes.set(xlabel=f"{task.metric}, %")
    drawing.axes.grid(axis="x", visible=True)
    drawing.axes.invert_yaxis()
    labels = [group.label for group in groups]
    caption = (
        f"{capital(task.metric)} of every method on the source it was trained on (top) and on each domain it has never seen; "
        "further right "
        "is better. What a method adds is how far right it lies below the first row, where most are close. Lines through a "
        "mark are the standard deviation over seeds."
    )
    alt = f"{task.metric} of {listed(labels)} on {listed(rows)}"
    return Plate(
        f"{capital(task.metric)} by domain",
        caption + left_out(others),
        [drawing.panel(alt)],
        legend=labels,
    )


def ablations(task: TaskRuns) -> list[tuple[str, Group, list[str]]]:
    """The settings the paper ablates that there are runs of: name, runs, and the domains of the average."""
    domains = (
        [d for d in task.domains if d.endswith("/5")] if task.task == "cifar10_c" else task.domains
    )
    found = [(ablation(group.differs), group, domains) for group in task.of(OURS)]
    named = [(name, group, domains) for name, group, domains in found if name is not None]
    return sorted(named, key=lambda row: list(MEANING).index(row[0])) if len(named) > 1 else []


def ablation_plate(task: TaskRuns) -> Plate | None:
    """What each part of the method is worth: the method without it."""
    rows = ablations(task)
    if not rows:
        return None
    drawing = Drawing(0.8 + 0.3 * len(rows))
    ours = [
        (100 * mean, 100 * std)
        for mean, std in (group.mean_and_std(domains) for _, group, domains in rows)
    ]
    reported = [ablation_figure(task.task, name) for name, _, _ in rows]
    at = np.arange(len(rows))
    _row(drawing, at - 0.12, ours, 0)
    paper = [(r.value, r.std) if r else (math.nan, math.nan) for r in reported]
    if any(reported):
        _row(drawing, at + 0.12, paper, 1)
    full = ours[0][0]
    drawing.axes.axvline(full, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    drawing.axes.set_yticks(at, [name for name, _, _ in rows])
    drawing.axes.set(xlabel=f"mean {task.metric}, unseen, %")
    drawing.axes.grid(axis="x", visible=True)
    drawing.axes.invert_yaxis()
    told = "; ".join(f"{name}: {MEANING[name]}" for name, _, _ in rows)
    remark = next(
        (f" The paper's averages are {r.remark}." for r in reported if r and r.remark), ""
    )
    seeds = {len(group.runs) for _, group, _ in rows}
    caption = (
        f"The method with one part changed at a time; marks left of the dashed line (the whole method) lost something. {told}. "
        f"Bars are the standard deviation over seeds ({' or '.join(map(str, sorted(seeds)))} of ours).{remark}"
    )
    alt = f"mean {task.metric} on unseen domains of {listed([name for name, _, _ in rows])}"
    return Plate(
        "Ablations",
        caption,
        [drawing.panel(alt)],
        legend=["ours", "the paper"] if any(reported) else ["ours"],
    )


def _row(drawing: Drawing, at: np.ndarray, points: list[tuple[float, float]], index: int) -> None:
    means, stds = zip(*points, strict=True)
    known = [0 if math.isnan(s) else s for s in stds]
    look = series(index)
    drawing.axes.errorbar(
        means,
        at,
        xerr=known if any(known) else None,
        linestyle="none",
        elinewidth=1,
        capsize=2.5,
        **look,
    )
