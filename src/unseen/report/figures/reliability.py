"""Reliability diagrams: accuracy against confidence, before and after calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.report.figures.svg import INK, Figure, Panel, Plot, series_style
from unseen.report.groups import OURS, TaskRuns
from unseen.report.runs import FinishedRun

MAX_PANELS = 6
KINDS = {
    "before": "before: maximum softmax probability",
    "after": "after: correctness probability",
}
SMALLEST, LARGEST = 12.0, 130.0  # areas of marks, in points


def reliability_figure(task: TaskRuns) -> Figure | None:
    """Draw the source and the domains whose confidence is furthest off before; None without bins.

    The run is one of our method if it has bins.
    """
    run = _run_with_bins(task)
    if run is None:
        return None
    errors = {d: calibration_error(run.reliability_arrays[f"before/{d}"]) for d in _domains(run)}
    unseen = [d for d in errors if d != run.source]
    count = MAX_PANELS - (run.source in errors)
    worst = sorted(unseen, key=lambda d: -errors[d])[:count]
    shown = [d for d in errors if d == run.source or d in worst]
    panels = [_diagram(task, run, domain) for domain in shown]
    omitted = (
        "" if len(worst) == len(unseen) else f" The {count} worst of {len(unseen)} unseen domains."
    )
    caption = (
        f"Accuracy of the predictions in 10 equal bins of confidence, {run.config['method']} "
        f"(seed {run.seed}). Larger marks have more samples. On the diagonal, confidence equals "
        "accuracy; below it, the model is overconfident. The correctness probability is fitted to "
        "held-out source data and synthetic shifts of it. ECE: expected calibration error, the "
        f"mean distance from the diagonal.{omitted}"
    )
    legend = list(KINDS.values())
    return Figure(f"{task.title}: reliability", caption, panels, legend=legend)


def calibration_error(bins: NDArray[Any]) -> float:
    """Return the mean distance of confidence and accuracy over the samples."""
    count, confidence, accuracy = bins
    return float((count * np.abs(confidence - accuracy)).sum() / max(1, count.sum()))


def _run_with_bins(task: TaskRuns) -> FinishedRun | None:
    groups = [*task.of(OURS), *task.groups]
    return next((run for group in groups for run in group.runs if _domains(run)), None)


def _domains(run: FinishedRun) -> list[str]:
    """Return the domains with bins of both kinds, the source first."""
    arrays = run.reliability_arrays
    saved = [name.partition("/")[2] for name in arrays if name.startswith("before/")]
    known = [d for d in (run.source, *run.domains) if d in saved]
    return [d for d in dict.fromkeys([*known, *sorted(saved)]) if f"after/{d}" in arrays]


def _diagram(task: TaskRuns, run: FinishedRun, domain: str) -> Panel:
    plot = Plot(3.4)
    plot.axes.plot([0, 100], [0, 100], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    errors = []
    for i, kind in enumerate(KINDS):
        bins = run.reliability_arrays[f"{kind}/{domain}"]
        errors.append(f"{100 * calibration_error(bins):.1f}")
        count, confidence, accuracy = bins[:, bins[0] > 0]
        style = series_style(i)
        areas = SMALLEST + (LARGEST - SMALLEST) * count / max(1, count.sum())
        x, y = 100 * confidence, 100 * accuracy
        plot.axes.plot(x, y, color=style["color"], linewidth=0.8, alpha=0.6)
        plot.axes.scatter(x, y, s=areas, alpha=0.8, linewidth=0, clip_on=False, **style)
    ticks = range(0, 101, 20)
    plot.axes.set(xlabel="confidence, %", ylabel="accuracy, %", xticks=ticks, yticks=ticks)
    plot.axes.set(xlim=(-2, 102), ylim=(-2, 102))
    plot.axes.grid(visible=True)
    name = task.source_label if domain == task.source else domain
    title = f"{name}: ECE {errors[0]} % before, {errors[1]} % after"
    return plot.panel(f"accuracy against confidence on {title}", title)
