"""Ablations of the method, and sweeps over one setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unseen.report.ablations import ABLATIONS, find_ablations
from unseen.report.figures.svg import INK, Figure, Plot, join_names, series_style
from unseen.report.figures.training import draw_means, scaled
from unseen.report.groups import OURS, TaskRuns, find_sweeps, settings_of
from unseen.report.paper import ablation_value

SWEEPS = {
    "draws": (
        "Number of draws K",
        "draws K per step",
        "linear",
        "Each step trains on K random perturbations of its batch, at proportional cost.",
    ),
    "adversary.beta": (
        "Weight of the adversary's constraint, β",
        "β (logarithmic)",
        "log",
        "β penalizes the distance of perturbed features from clean ones: a small β leaves the "
        "adversary unconstrained, a large one keeps perturbations close to the source.",
    ),
}


def ablation_figure(task: TaskRuns) -> Figure | None:
    """Draw the complete method and its ablations, beside the paper's values."""
    rows = find_ablations(task)
    if not rows:
        return None
    plot = Plot(0.8 + 0.3 * len(rows))
    names = [name for name, _, _ in rows]
    ours = [scaled(group.mean_and_std(domains), task.scale) for _, group, domains in rows]
    values = [ablation_value(task.task, name) for name in names]
    y = np.arange(len(rows))
    _draw_row(plot, y - 0.12, ours, 0)
    if any(values):
        paper = [(v.value, v.std) if v else (math.nan, math.nan) for v in values]
        _draw_row(plot, y + 0.12, paper, 1)
    plot.axes.axvline(ours[0][0], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    plot.axes.set_yticks(y, names)
    plot.axes.set(xlabel=task.with_unit(f"mean {task.metric}, unseen"))
    plot.axes.grid(axis="x", visible=True)
    plot.axes.invert_yaxis()
    remark = next((f" The paper's averages are {v.remark}." for v in values if v and v.remark), "")
    seeds = " or ".join(map(str, sorted({len(group.runs) for _, group, _ in rows})))
    caption = (
        f"The method with one part changed; dashed: {names[0]}. "
        f"{'; '.join(f'{name}: {ABLATIONS[name]}' for name in names)}. "
        f"Error bars: standard deviation over seeds ({seeds} of ours).{remark}"
    )
    alt = f"mean {task.metric} on unseen domains of {join_names(names)}"
    legend = ["ours", "paper"] if any(values) else ["ours"]
    return Figure("Ablations", caption, [plot.panel(alt)], legend=legend)


def _draw_row(plot: Plot, y: np.ndarray, points: Sequence[tuple[float, float]], i: int) -> None:
    means, stds = zip(*points, strict=True)
    known = [0 if math.isnan(std) else std for std in stds]
    style: dict[str, Any] = {
        "linestyle": "none",
        "elinewidth": 1,
        "capsize": 2.5,
        **series_style(i),
    }
    plot.axes.errorbar(means, y, xerr=known if any(known) else None, **style)


def sweep_figures(task: TaskRuns) -> list[Figure]:
    """Draw the metric over the number of draws and over beta, if runs differ only in these."""
    figures = []
    for name, (title, label, scale, caption) in SWEEPS.items():
        for groups in find_sweeps(task.of(OURS), name)[:1] if task.domains else ():
            plot = Plot()
            values = [settings_of(group.runs[0])[name] for group in groups]
            points = [scaled(group.mean_and_std(task.domains), task.scale) for group in groups]
            draw_means(plot, values, points, series_style(0))
            title_y = task.with_unit(f"mean {task.metric}, unseen")
            plot.axes.set(xlabel=label, ylabel=title_y, xscale=scale)
            plot.axes.set_xticks(values, [f"{value:g}" for value in values])
            plot.axes.minorticks_off()
            names = join_names([str(value) for value in values])
            alt = f"mean {task.metric} on unseen domains for {name} {names}"
            seeds = max(len(group.runs) for group in groups)
            bars = f" Error bars: std over {seeds} seeds." if seeds > 1 else " One seed."
            figures.append(Figure(title, caption + bars, [plot.panel(alt)]))
    return figures
