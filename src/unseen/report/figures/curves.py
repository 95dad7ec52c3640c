"""Curves: what happens over training, over severities, over the number of draws."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from unseen.report.figures.svg import (
    SERIES,
    Drawing,
    Panel,
    Plate,
    binned,
    capital,
    finite,
    listed,
    series,
)
from unseen.report.groups import OURS, Group, TaskRuns, settings_of, sweep
from unseen.report.statistics import mean_and_std

MOST = 8  # series in one drawing
GRADED = re.compile(r"(.+)/(\d+)")  # fog/3: a corruption and its severity
WATCHED = {
    "lambda": "λ, share of the clean features",
    "a": "a of λ ~ Beta(a, b)",
    "b": "b of λ ~ Beta(a, b)",
    "tau": "τ, chance of a smoothed label",
    "sigma": "mean σ, spread of the noise",
}


def main_groups(task: TaskRuns, most: int = MOST) -> tuple[list[Group], list[str]]:
    """The best group, one of every method, further settings where there is room; and the labels of those left out."""
    value = {id(g): g.mean_and_std(task.domains)[0] for g in task.groups}
    best = max(value.values())
    ranked = sorted(
        task.groups,
        key=lambda g: (
            value[id(g)] < best,
            bool(g.differs),
            g.method not in ("erm", OURS),
            -value[id(g)],
        ),
    )
    kept = ranked[:most]
    return [g for g in task.groups if g in kept], [g.label for g in task.groups if g not in kept]


def left_out(labels: Sequence[str]) -> str:
    if not labels:
        return ""
    named = listed(labels) if len(labels) <= 4 else f"{len(labels)} further settings"
    return f" Not drawn, to keep it readable: {named}."


def over_training(task: TaskRuns) -> Plate | None:
    """The metric at the checkpoints that were kept on the way."""
    groups, others = main_groups(task)
    unseen, source = Drawing(), Drawing()
    drawn = {"unseen": False, "source": False}
    for i, group in enumerate(groups):
        steps = [
            step
            for step in group.runs[0].examined
            if len(group.over(task.domains, step)) == len(group.runs)
        ]
        if len(steps) > 1:
            _line(
                unseen,
                steps,
                [_percent(mean_and_std(group.over(task.domains, step))) for step in steps],
                series(i),
            )
            drawn["unseen"] = True
        at, points = _held_out(group)
        if len(at) > 1:
            _line(source, at, [_percent(point) for point in points], series(i))
            drawn["source"] = True
    if not any(drawn.values()):
        return None
    labels = [group.label for group in groups]
    places = (
        ("unseen", unseen, "unseen domains, mean"),
        ("source", source, f"{task.source}, held out"),
    )
    panels = []
    for name, drawing, where in places:
        if drawn[name]:
            drawing.axes.set(xlabel="training step", ylabel=f"{task.metric}, %")
            panels.append(
                drawing.panel(
                    f"{task.metric} over training steps on {where}, for {listed(labels)}", where
                )
            )
    caption = (
        f"{capital(task.metric)} as training goes on, on the domains that it never saw (their mean) where checkpoints were "
        "kept to "
        f"examine, and on held-out samples of the source {task.source}. Bars are the standard deviation over seeds. The source "
        "is "
        "learned early; what tells methods apart is whether the unseen domains go on rising, or fall while the source still "
        "rises."
    )
    return Plate(
        f"{capital(task.metric)} over training", caption + left_out(others), panels, legend=labels
    )


def _held_out(group: Group) -> tuple[list[int], list[tuple[float, float]]]:
    """The metric on held-out source data, at kept checkpoints, or else on the few samples that are looked at on the way."""
    for metric, split in (
        (group.runs[0].metric, "val"),
        (f"source_{group.runs[0].metric}", "train"),
    ):
        seen = [dict(zip(*run.curve(metric, split), strict=True)) for run in group.runs]
        at = sorted(set.intersection(*(set(curve) for curve in seen)))
        if len(at) > 1:
            return at, [mean_and_std([curve[step] for curve in seen]) for step in at]
    return [], []


def _line(
    drawing: Drawing,
    x: Sequence[float],
    points: Sequence[tuple[float, float]],
    look: dict[str, Any],
) -> None:
    means, stds = [m for m, _ in points], [s for _, s in points]
    drawing.axes.errorbar(
        x, means, yerr=stds if any(stds) else None, capsize=2.5, elinewidth=1, **look
    )


def severities(task: TaskRuns) -> list[Plate]:
    """Per severity and per corruption, where domains are named corruption/severity."""
    graded = {d: GRADED.fullmatch(d) for d in task.domains}
    if not graded or not all(graded.values()):
        return []
    corruptions = list(dict.fromkeys(m[1] for m in graded.values() if m))
    levels = sorted({int(m[2]) for m in graded.values() if m})
    groups, others = main_groups(task)
    curve = Drawing()
    for i, group in enumerate(groups):
        of_level = [[d for d, m in graded.items() if m and int(m[2]) == level] for level in levels]
        _line(
            curve,
            levels,
            [_percent(group.mean_and_std(domains)) for domains in of_level],
            series(i),
        )
    curve.axes.set(xlabel="severity", ylabel=f"{task.metric}, %", xticks=levels)
    labels = [group.label for group in groups]
    told = (
        f"Mean {task.metric} over all {len(corruptions)} corruptions at each severity; bars are the standard deviation over "
        "seeds. "
        "Flatter is better: a flat curve is a model that stronger corruption does not hurt."
    )
    by_level = Plate(
        "By severity",
        told + left_out(others),
        [
            curve.panel(
                f"{task.metric} falls with severity from {levels[0]} to {levels[-1]}, for {listed(labels)}"
            )
        ],
        legend=labels,
    )
    groups, others = main_groups(task, 4)
    half = -(-len(corruptions) // 2)
    panels = [
        _bars(task, groups, part) for part in (corruptions[:half], corruptions[half:]) if part
    ]
    told = f"Mean {task.metric} over the severities of each corruption; the thin lines are the standard deviation over seeds."
    by_kind = Plate(
        "By corruption", told + left_out(others), panels, legend=[g.label for g in groups]
    )
    return [by_level, by_kind]


def _percent(spread: tuple[float, float]) -> tuple[float, float]:
    return 100 * spread[0], 100 * spread[1]


def _bars(task: TaskRuns, groups: Sequence[Group], corruptions: Sequence[str]) -> Panel:
    drawing = Drawing(0.6 + 0.16 * (len(groups) + 1) * len(corruptions))
    thick = 0.84 / len(groups)
    for i, group in enumerate(groups):
        spread = [
            _percent(group.mean_and_std([d for d in task.domains if d.startswith(f"{c}/")]))
            for c in corruptions
        ]
        at = np.arange(len(corruptions)) + (i - (len(groups) - 1) / 2) * thick
        stds = [s for _, s in spread]
        drawing.axes.barh(at, [m for m, _ in spread], thick * 0.9, color=SERIES[i], xerr=stds if any(stds) else None,
                          error_kw={"elinewidth": 0.8})  # fmt: skip
    drawing.axes.set_yticks(range(len(corruptions)), [c.replace("_", " ") for c in corruptions])
    drawing.axes.grid(axis="y", visible=False)
    drawing.axes.grid(axis="x", visible=True)
    drawing.axes.set(xlabel=f"{task.metric}, %", xlim=(0, 100))
    drawing.axes.invert_yaxis()
    return drawing.panel(
        f"{task.metric} under {listed(list(corruptions))}, for {listed([g.label for g in groups])}"
    )


def sweeps(task: TaskRuns) -> list[Plate]:
    """The number of draws K and the adversary's bound beta, where there are runs that differ in nothing else."""
    told = {
        "draws": (
            "Number of draws K", "draws K per step", "linear",
            "Each step learns from K random perturbations of its batch. More of them cost proportionally more time; the curve "
            "says "
            "what they buy.",
        ),
        "beta": (
            "Bound on the adversary, β", "β, on a logarithmic axis", "log",
            "β punishes perturbations that move a sample's features far. At a small β the adversary is free, at a large one it "
            "hardly "
            "moves; the paper expects the best in between.",
        ),
    }  # fmt: skip
    plates = []
    for name, (title, axis, scale, why) in told.items():
        for same in sweep(task.of(OURS), name)[:1]:
            drawing = Drawing()
            values = [settings_of(group.runs[0])[name] for group in same]
            _line(
                drawing,
                values,
                [_percent(group.mean_and_std(task.domains)) for group in same],
                series(0),
            )
            drawing.axes.set(xlabel=axis, ylabel=f"mean {task.metric}, unseen, %", xscale=scale)
            drawing.axes.set_xticks(values, [f"{value:g}" for value in values])
            drawing.axes.minorticks_off()
            alt = f"mean {task.metric} on unseen domains for {name} {listed([str(v) for v in values])}"
            seeds = max(len(group.runs) for group in same)
            ends = (
                f" Bars: standard deviation over {seeds} seeds."
                if seeds > 1
                else " One seed: no error bars."
            )
            plates.append(Plate(title, why + ends, [drawing.panel(alt)]))
    return plates


def transport(task: TaskRuns) -> Plate | None:
    """How far perturbed features lie from clean ones, over training."""
    drawing = Drawing()
    drawn: list[str] = []
    for group in task.of(OURS)[:MOST]:
        if _trained(drawing, group, ["transport"], len(drawn)):
            drawn.append(group.label)
    if not drawn:
        return None
    drawing.axes.set(xlabel="training step", ylabel="‖z − z⁺‖", ylim=(0, None))
    caption = (
        "Mean distance ‖z − z⁺‖ between a sample's features z and its perturbed features z⁺, at the layer before the classifier. "
        "A growing distance means that the perturbed domains, easy at first, get harder as training goes on; a falling one means "
        "that the model has learned to undo the perturbation. Shaded: standard deviation over seeds."
    )
    alt = f"distance between clean and perturbed features over training steps, for {listed(drawn)}"
    return Plate(
        "Transport of the features",
        caption + _rest(task, drawn),
        [drawing.panel(alt)],
        legend=drawn,
    )


def watched(task: TaskRuns) -> Plate | None:
    """lambda, a, b, tau and mean sigma over training."""
    groups = [group for group in task.of(OURS) if group.runs[0].logged()][:MOST]
    panels = []
    for name, meaning in WATCHED.items():
        drawing = Drawing(2.3)
        found = [
            _trained(drawing, group, _recorded(group, name), i) for i, group in enumerate(groups)
        ]
        if any(found):
            drawing.axes.set(xlabel="training step")
            panels.append(drawing.panel(f"{meaning}, over training steps", meaning))
    if not panels:
        return None
    labels = [group.label for group in groups]
    caption = (
        "What the heads, small networks beside the model, make of the noise they are in charge of. Noise of mean μ and spread "
        "σ is "
        "added to features; perturbed features are mixed with clean ones in the share λ ~ Beta(a, b), and with the chance τ "
        "their "
        "label is smoothed. A σ that grows is uncertainty that the adversary found useful; a run that mixes nothing has σ alone. "
        "Each point is the mean of neighbouring records; shaded: standard deviation over seeds."
    )
    return Plate("Learned noise and mixing", caption + _rest(task, labels), panels, legend=labels)


def _rest(task: TaskRuns, drawn: Sequence[str]) -> str:
    return left_out([g.label for g in task.of(OURS)[MOST:] if g.label not in drawn])


def _recorded(group: Group, name: str) -> list[str]:
    logged = group.runs[0].logged()
    return [m for m in logged if m == name or m.startswith(f"{name}/")]


def _trained(drawing: Drawing, group: Group, metrics: Sequence[str], index: int) -> bool:
    """Draw a group's curve of something recorded in training, the mean over sites and seeds; False if there is none."""
    curves = []
    for run in group.runs:
        parts = [run.curve(metric) for metric in metrics]
        if not parts or not parts[0][0]:
            return False
        values = np.mean([values for _, values in parts], axis=0)
        curves.append(dict(zip(parts[0][0], values.tolist(), strict=True)))
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    spread = [mean_and_std([curve[step] for curve in curves]) for step in steps]
    if not steps or not finite([m for m, _ in spread]):
        return False
    x, means = binned(steps, [m for m, _ in spread])
    _, stds = binned(steps, [s for _, s in spread])
    look = series(index)
    drawing.axes.plot(
        x, means, color=look["color"], marker=look["marker"], markevery=max(1, len(x) // 6)
    )
    if any(stds):
        low, high = np.subtract(means, stds), np.add(means, stds)
        drawing.axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
    return True
