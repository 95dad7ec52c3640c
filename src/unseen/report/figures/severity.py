"""The metric by severity and by corruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unseen.report.figures.selection import describe_omitted, select_groups
from unseen.report.figures.svg import SERIES, Figure, Panel, Plot, join_names, series_style
from unseen.report.figures.training import draw_means, scaled
from unseen.report.groups import Group, TaskRuns
from unseen.report.severities import SEVERITY

MAX_BARS = 4  # methods in the figure by corruption


def severity_figures(task: TaskRuns) -> list[Figure]:
    """Draw the metric by severity and by corruption, if domains are CORRUPTION/SEVERITY."""
    matches = {d: SEVERITY.fullmatch(d) for d in task.domains}
    if not matches or not all(matches.values()):
        return []
    corruption = {d: m[1] for d, m in matches.items() if m}
    severity = {d: int(m[2]) for d, m in matches.items() if m}
    corruptions = list(dict.fromkeys(corruption.values()))
    return [_by_severity(task, severity, len(corruptions)), _by_corruption(task, corruptions)]


def _by_severity(task: TaskRuns, severity: dict[str, int], corruptions: int) -> Figure:
    groups, rest = select_groups(task)
    levels = sorted(set(severity.values()))
    plot = Plot()
    for i, group in enumerate(groups):
        domains = [[d for d in severity if severity[d] == level] for level in levels]
        points = [scaled(group.mean_and_std(ds), task.scale) for ds in domains]
        draw_means(plot, levels, points, series_style(i))
    plot.axes.set(xlabel="severity", ylabel=task.with_unit(task.metric), xticks=levels)
    if not task.less_is_better:
        plot.limit_to_percent("y")
    labels = [group.label for group in groups]
    caption = (
        f"Mean {task.metric} over all {corruptions} corruptions at each severity. Error bars: "
        "standard deviation over seeds." + describe_omitted(rest)
    )
    alt = f"{task.metric} by severity {levels[0]} to {levels[-1]}, for {join_names(labels)}"
    return Figure("By severity", caption, [plot.panel(alt)], legend=labels)


def _by_corruption(task: TaskRuns, corruptions: Sequence[str]) -> Figure:
    groups, rest = select_groups(task, MAX_BARS)
    half = -(-len(corruptions) // 2)
    halves = [part for part in (corruptions[:half], corruptions[half:]) if part]
    caption = (
        f"Mean {task.metric} over the severities of each corruption. Error bars: standard "
        "deviation over seeds." + describe_omitted(rest)
    )
    panels = [_bars(task, groups, part) for part in halves]
    return Figure("By corruption", caption, panels, legend=[g.label for g in groups])


def _bars(task: TaskRuns, groups: Sequence[Group], corruptions: Sequence[str]) -> Panel:
    plot = Plot(0.6 + 0.16 * (len(groups) + 1) * len(corruptions))
    height = 0.84 / len(groups)
    for i, group in enumerate(groups):
        domains = [[d for d in task.domains if d.startswith(f"{c}/")] for c in corruptions]
        points = (scaled(group.mean_and_std(ds), task.scale) for ds in domains)
        means, stds = zip(*points, strict=True)
        y = np.arange(len(corruptions)) + (i - (len(groups) - 1) / 2) * height
        error = stds if any(stds) else None
        style: dict[str, Any] = {"color": SERIES[i], "xerr": error, "error_kw": {"elinewidth": 0.8}}
        plot.axes.barh(y, means, height * 0.9, **style)
    plot.axes.set_yticks(range(len(corruptions)), [c.replace("_", " ") for c in corruptions])
    plot.axes.grid(axis="y", visible=False)
    plot.axes.grid(axis="x", visible=True)
    limits = {} if task.less_is_better else {"xlim": (0, 100)}
    plot.axes.set(xlabel=task.with_unit(task.metric), **limits)
    plot.axes.invert_yaxis()
    labels = join_names([g.label for g in groups])
    return plot.panel(f"{task.metric} under {join_names(list(corruptions))}, for {labels}")
