"""Domain scores against the error and against the Bayesian score: PNG and report page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import matplotlib

from unseen.report.figures.svg import INK, MARKERS, MAX_SERIES, SERIES, Figure, Panel, Plot
from unseen.report.groups import OURS, TaskRuns
from unseen.report.runs import DOMAIN_SCORE
from unseen.report.statistics import mean_and_std, rank_correlation
from unseen.report.tables.scores import BAYES, mean_scores

DARK, FAINT, BLUE = "#22303c", "#d5dbe1", "#3d7ea6"  # of the PNG, which has no themes
MAX_NAMES = 12  # domains named beside their points
MAX_GROUPS = 9  # distinguishable by color
Values = Mapping[str, float]


def figure_name(facts: Mapping[str, Any]) -> str:
    """Return the file name of a task's figure."""
    words = [facts["task"]] if facts["variant"] == "default" else [facts["task"], facts["variant"]]
    return re.sub(r"[^\w.-]+", "-", "-".join(["figure", *words])) + ".png"


def group_domains(domains: list[str]) -> tuple[dict[str, list[str]], str]:
    """Group domains by the part of their names after the slash, such as a severity.

    Return the groups and a title for the legend; one group if names have no such part.
    """
    parts = [domain.rpartition("/") for domain in domains]
    groups: dict[str, list[str]] = {}
    for (before, _, behind), domain in zip(parts, domains, strict=True):
        groups.setdefault(behind if before else "", []).append(domain)
    if "" in groups or not 2 <= len(groups) <= MAX_GROUPS or len(groups) == len(domains):
        return {"unseen": list(domains)}, ""
    if not all(name.isdigit() for name in groups):
        return groups, ""
    return dict(sorted(groups.items(), key=lambda group: int(group[0]))), "severity"


def _errors(facts: Mapping[str, Any], method: str) -> dict[str, float]:
    """Return 1 - metric in percent of each domain over seeds."""
    values = [run["values"] for run in facts["runs"] if run["method"] == method]
    return {d: 100 - 100 * mean_and_std([v[d] for v in values])[0] for d in values[0]}


def _pairs(facts: Mapping[str, Any]) -> list[tuple[str, Values, str, Values]]:
    """Return the axes of each panel: label and values of x, label and values of y."""
    ours, bayes = mean_scores(facts, OURS), mean_scores(facts, BAYES)
    if not ours:
        return []
    pairs: list[tuple[str, Values, str, Values]] = [
        ("error of the model, %", _errors(facts, OURS), "domain score", ours)
    ]
    if bayes:
        pairs.append(("Bayesian score", bayes, "domain score", ours))
        errors = _errors(facts, BAYES)
        pairs.append(("error of the Bayesian network, %", errors, "Bayesian score", bayes))
    return pairs


def _correlation(facts: Mapping[str, Any], x: Values, y: Values) -> str:
    rho = rank_correlation([x[d] for d in facts["domains"]], [y[d] for d in facts["domains"]])
    return "no rank correlation" if rho is None else f"rank correlation {rho:.2f}"


def draw_scores(facts: Mapping[str, Any]) -> bytes:
    """Return a PNG with a panel for each pair of our score, the Bayesian score and the error."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    pairs = _pairs(facts)
    groups, legend_title = group_domains(facts["domains"])
    shades = matplotlib.colormaps["viridis_r"]
    last = max(1, len(groups) - 1)
    colors: dict[str, Any] = {name: shades(0.08 + 0.84 * i / last) for i, name in enumerate(groups)}
    if len(groups) == 1:
        colors = dict.fromkeys(groups, BLUE)
    size = (4.6 * len(pairs), 4.4)
    canvas, axes = plt.subplots(1, len(pairs), figsize=size, squeeze=False, layout="constrained")
    source = facts["source"]
    for place, (x_label, x, y_label, y) in zip(axes[0], pairs, strict=True):
        for name, domains in groups.items():
            style: dict[str, Any] = {
                "color": colors[name],
                "edgecolor": "white",
                "linewidth": 0.6,
                "label": name,
            }
            place.scatter([x[d] for d in domains], [y[d] for d in domains], s=34, **style)
        star: dict[str, Any] = {"marker": "*", "color": "white", "edgecolor": DARK, "zorder": 3}
        place.scatter([x[source]], [y[source]], s=130, label=f"{source} (source)", **star)
        title = f"{_correlation(facts, x, y)}, {len(facts['domains'])} domains"
        place.set_title(title, loc="left", fontsize=10, color=DARK)
        place.set_xlabel(x_label, color=DARK)
        place.set_ylabel(y_label, color=DARK)
        place.spines[["top", "right"]].set_visible(False)
        place.grid(color=FAINT, linewidth=0.5)
        place.set_axisbelow(True)
        place.margins(0.12)
        if len(facts["domains"]) <= MAX_NAMES:
            _name_points(place, {d: (x[d], y[d]) for d in facts["domains"]}, DARK, 8)
        place.locator_params(nbins=5)
        place.tick_params(colors=DARK)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if len(groups) < 2:
        handles, labels = handles[-1:], labels[-1:]
    place_below: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles)}
    fonts: dict[str, Any] = {
        "title": legend_title,
        "fontsize": 8,
        "title_fontsize": 8,
        "frameon": False,
    }
    canvas.legend(handles, labels, **place_below, **fonts)
    other = f" and {BAYES}" if len(pairs) > 1 else ""
    canvas.suptitle(f"{facts['task']}: {OURS}{other}", color=DARK)
    content = io.BytesIO()
    canvas.savefig(content, format="png", dpi=130)
    plt.close(canvas)
    return content.getvalue()


def _name_points(
    place: Any, points: Mapping[str, tuple[float, float]], color: str, size: float
) -> None:
    """Write each name above its point, or below it if another point is close above."""
    (left, right), (bottom, top) = place.get_xlim(), place.get_ylim()
    for name, (x, y) in points.items():
        crowded = any(
            abs(x - a) < (right - left) / 7 and 0 < b - y < (top - bottom) / 12
            for a, b in points.values()
        )
        offset: dict[str, Any] = {
            "xytext": (0, -12 if crowded else 6),
            "textcoords": "offset points",
        }
        place.annotate(name, (x, y), fontsize=size, color=color, ha="center", **offset)


def comparison_figure(facts: Mapping[str, Any], title: str) -> Figure | None:
    """Return the figure of one comparison for the report page; None without our score."""
    pairs = _pairs(facts)
    if not pairs:
        return None
    groups, _ = group_domains(facts["domains"])
    if len(groups) > MAX_SERIES:
        groups = {"": list(facts["domains"])}
    panels = [_scatter(facts, groups, *pair) for pair in pairs]
    caption = (
        "Each point is a domain, mean over seeds; the star is the source. The domain score, the "
        "deviation of the learned σ from its value on the source, needs one forward pass and no "
        "labels. A useful score ranks domains like their error: rank correlation 1."
        + (" The Bayesian score needs many forward passes." if len(pairs) > 1 else "")
    )
    legend = list(groups) if len(groups) > 1 else []
    return Figure(f"{title}: score and error", caption, panels, legend=legend)


def _scatter(
    facts: Mapping[str, Any],
    groups: Mapping[str, list[str]],
    x_label: str,
    x: Values,
    y_label: str,
    y: Values,
) -> Panel:
    plot = Plot(3.1)
    for i, domains in enumerate(groups.values()):
        style: dict[str, Any] = {"s": 26, "color": SERIES[i], "marker": MARKERS[i]}
        plot.axes.scatter([x[d] for d in domains], [y[d] for d in domains], **style)
    source = facts["source"]
    star: dict[str, Any] = {"s": 90, "marker": "*", "facecolor": "none", "edgecolor": INK}
    plot.axes.scatter([x[source]], [y[source]], **star)
    plot.axes.set(xlabel=x_label, ylabel=y_label)
    plot.axes.grid(visible=True)
    plot.axes.margins(0.16)
    if x_label.endswith("%"):
        plot.limit_to_percent("x")
    names = [source, *(facts["domains"] if len(facts["domains"]) <= MAX_NAMES else [])]
    _name_points(plot.axes, {d: (x[d], y[d]) for d in names}, INK, 9)
    title = _correlation(facts, x, y)
    alt = f"{y_label} against {x_label} of {len(facts['domains'])} domains: {title}"
    return plot.panel(alt, title)


def domain_score_figure(task: TaskRuns) -> Figure | None:
    """Draw the domain scores that `unseen evaluate` recorded against the error, by method."""
    panels = []
    for group in task.groups[:MAX_SERIES]:
        runs = [run for run in group.runs if run.scores(DOMAIN_SCORE)]
        if not runs or not task.domains:
            continue
        names = [task.source, *task.domains]
        scores = [run.scores(DOMAIN_SCORE) for run in runs]
        if any(name not in score for name in names for score in scores):
            continue
        y = {d: mean_and_std([score[d] for score in scores])[0] for d in names}
        means = {d: mean_and_std([run.values[d] for run in runs])[0] for d in names}
        x = means if task.less_is_better else {d: 100 - 100 * v for d, v in means.items()}
        label = task.metric if task.less_is_better else "error, %"
        facts = {"source": task.source, "domains": task.domains}
        panel = _scatter(facts, {"": task.domains}, label, x, "domain score", y)
        panels.append(Panel(panel.svg, panel.alt, f"{group.label}: {panel.title}"))
    if not panels:
        return None
    caption = (
        "Each point is a domain, mean over seeds; the star is the source. A useful score ranks "
        "domains like their error: rank correlation 1."
    )
    return Figure("Domain score and error", caption, panels)
