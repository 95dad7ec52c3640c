"""The metric of every method on every domain."""

from __future__ import annotations

from typing import Any

import numpy as np

from unseen.report.figures.selection import describe_omitted, select_groups
from unseen.report.figures.svg import Figure, Plot, capitalize, join_names, series_style
from unseen.report.groups import TaskRuns
from unseen.report.severities import MAX_DOMAINS


def metric_by_domain(task: TaskRuns) -> Figure | None:
    """Draw a row for each domain and a mark for each method; None for one method."""
    names = [task.source, *task.domains]
    if len(task.groups) < 2 or not task.domains or len(names) > MAX_DOMAINS:
        return None
    groups, rest = select_groups(task)
    plot = Plot(0.8 + 0.52 * (len(names) + 1))
    y = np.arange(len(names) + 1)
    spacing = min(0.2, 0.72 / len(groups))
    for i, group in enumerate(groups):
        points = [group.mean_and_std([d]) for d in names] + [group.mean_and_std(task.domains)]
        means, stds = ([task.scale * v for v in part] for part in zip(*points, strict=True))
        offset = (i - (len(groups) - 1) / 2) * spacing
        error = stds if any(stds) else None
        style: dict[str, Any] = {"linestyle": "none", "elinewidth": 1, **series_style(i)}
        plot.axes.errorbar(means, y + offset, xerr=error, **style)
    plot.axes.set_yticks(y, [task.source_label, *task.domains, "average, unseen"])
    plot.axes.set(xlabel=task.with_unit(task.metric))
    if not task.less_is_better:
        plot.limit_to_percent("x")
    plot.axes.grid(axis="x", visible=True)
    plot.axes.invert_yaxis()
    labels = [group.label for group in groups]
    caption = (
        f"{capitalize(task.metric)} of every method on the source domain (top) and on each unseen "
        "domain. Error bars: standard deviation over seeds." + describe_omitted(rest)
    )
    alt = f"{task.metric} of {join_names(labels)} on {join_names(names)}"
    title = f"{capitalize(task.metric)} by domain"
    return Figure(title, caption, [plot.panel(alt)], legend=labels)
