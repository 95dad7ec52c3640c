"""Curves over training: the metric, the distance of perturbed features, the learned noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unseen.report.figures.selection import describe_omitted, select_groups
from unseen.report.figures.svg import (
    MAX_SERIES,
    Figure,
    Plot,
    all_finite,
    bin_means,
    capitalize,
    join_names,
    series_style,
)
from unseen.report.groups import OURS, Group, TaskRuns
from unseen.report.statistics import mean_and_std
from unseen.report.units import scale_of

NOISE_METRICS = {
    "lambda": "λ, mixup coefficient of clean features",
    "a": "a of λ ~ Beta(a, b)",
    "b": "b of λ ~ Beta(a, b)",
    "tau": "τ, probability of a smoothed label",
    "sigma": "mean σ, standard deviation of the noise",
}


def metric_over_training(task: TaskRuns) -> Figure | None:
    """Draw the metric at the checkpoints, on unseen domains and on held-out source data."""
    groups, rest = select_groups(task)
    labels = [group.label for group in groups]
    panels = []
    for title, curve in (
        ("unseen domains, mean", lambda group: _unseen_curve(task, group)),
        ("held-out source data", _source_curve),
    ):
        plot, empty = Plot(), True
        for i, group in enumerate(groups):
            steps, points = curve(group)
            if len(steps) > 1:
                draw_means(plot, steps, points, series_style(i))
                empty = False
        if not empty:
            plot.axes.set(xlabel="training step", ylabel=task.with_unit(task.metric))
            if not task.less_is_better:
                plot.limit_to_percent("y")
            alt = f"{task.metric} over training steps, {title}, for {join_names(labels)}"
            panels.append(plot.panel(alt, title))
    if not panels:
        return None
    caption = (
        f"{capitalize(task.metric)} during training: mean over the unseen domains, where "
        "checkpoints were kept and evaluated, and on held-out source data. Error bars: standard "
        "deviation over seeds." + describe_omitted(rest)
    )
    return Figure(f"{capitalize(task.metric)} over training", caption, panels, legend=labels)


Points = list[tuple[float, float]]


def _unseen_curve(task: TaskRuns, group: Group) -> tuple[list[int], Points]:
    steps = [
        step
        for step in group.runs[0].evaluations
        if len(group.averages(task.domains, step)) == len(group.runs)
    ]
    return steps, [scaled(mean_and_std(group.averages(task.domains, s)), task.scale) for s in steps]


def _source_curve(group: Group) -> tuple[list[int], Points]:
    """Return the metric at checkpoints, or else on the few samples of the training log."""
    metric = group.runs[0].metric
    for name, split in ((metric, "val"), (f"source_{metric}", "train")):
        curves = [dict(zip(*run.curve(name, split), strict=True)) for run in group.runs]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        if len(steps) > 1:
            points = [mean_and_std([c[step] for c in curves]) for step in steps]
            return steps, [scaled(point, scale_of(metric)) for point in points]
    return [], []


def scaled(mean_std: tuple[float, float], scale: float) -> tuple[float, float]:
    return scale * mean_std[0], scale * mean_std[1]


def draw_means(
    plot: Plot, x: Sequence[float], points: Sequence[tuple[float, float]], style: dict[str, Any]
) -> None:
    """Draw a line through means with error bars."""
    means, stds = zip(*points, strict=True)
    error = stds if any(stds) else None
    plot.axes.errorbar(x, means, yerr=error, capsize=2.5, elinewidth=1, **style)


def transport(task: TaskRuns) -> Figure | None:
    """Draw the distance between clean and perturbed features over training."""
    plot = Plot()
    labels: list[str] = []
    for group in task.of(OURS)[:MAX_SERIES]:
        if _draw_log(plot, group, ["transport"], len(labels)):
            labels.append(group.label)
    if not labels:
        return None
    plot.axes.set(xlabel="training step", ylabel="‖z − z⁺‖", ylim=(0, None))
    caption = (
        "Mean distance between clean features z and perturbed features z⁺ at the embedding. "
        "Shaded: standard deviation over seeds." + _omitted(task, labels)
    )
    alt = f"distance between clean and perturbed features over training, for {join_names(labels)}"
    return Figure("Distance of perturbed features", caption, [plot.panel(alt)], legend=labels)


def learned_noise(task: TaskRuns) -> Figure | None:
    """Draw lambda, a, b, tau and mean sigma over training."""
    groups = [group for group in task.of(OURS) if group.runs[0].logged_metrics()][:MAX_SERIES]
    panels = []
    for name, meaning in NOISE_METRICS.items():
        plot = Plot(2.3)
        drawn = [
            _draw_log(plot, group, _logged_names(group, name), i) for i, group in enumerate(groups)
        ]
        if any(drawn):
            plot.axes.set(xlabel="training step")
            panels.append(plot.panel(f"{meaning}, over training steps", meaning))
    if not panels:
        return None
    labels = [group.label for group in groups]
    caption = (
        "Outputs of the noise and mixup heads. Noise with mean μ and standard deviation σ is added "
        "to features; perturbed and clean features are mixed with λ ~ Beta(a, b); with probability "
        "τ the label is smoothed. Runs without mixup have σ only. Points are means of neighboring "
        "records. Shaded: standard deviation over seeds." + _omitted(task, labels)
    )
    return Figure("Learned noise and mixup", caption, panels, legend=labels)


def _omitted(task: TaskRuns, labels: Sequence[str]) -> str:
    return describe_omitted([g.label for g in task.of(OURS)[MAX_SERIES:] if g.label not in labels])


def _logged_names(group: Group, name: str) -> list[str]:
    metrics = group.runs[0].logged_metrics()
    return [metric for metric in metrics if metric == name or metric.startswith(f"{name}/")]


def _draw_log(plot: Plot, group: Group, metrics: Sequence[str], index: int) -> bool:
    """Draw the mean over metrics and seeds of a group's log; return False if there is none."""
    curves = []
    for run in group.runs:
        parts = [run.curve(metric) for metric in metrics]
        if not parts or not parts[0][0]:
            return False
        means = np.mean([values for _, values in parts], axis=0)
        curves.append(dict(zip(parts[0][0], means.tolist(), strict=True)))
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    points = [mean_and_std([curve[step] for curve in curves]) for step in steps]
    if not steps or not all_finite([mean for mean, _ in points]):
        return False
    x, y = bin_means(steps, [mean for mean, _ in points])
    _, stds = bin_means(steps, [std for _, std in points])
    style = series_style(index)
    plot.axes.plot(x, y, **style, markevery=max(1, len(x) // 6))
    if any(stds):
        low, high = np.subtract(y, stds), np.add(y, stds)
        plot.axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
    return True
