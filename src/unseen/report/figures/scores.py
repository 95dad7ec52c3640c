"""The paper's figure of uncertainty: our score of each domain against the Bayesian one, and both against the error."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import matplotlib

from unseen.report.statistics import mean_and_std, rank_correlation
from unseen.report.tables.scores import BAYES, scores_by_seed

INK, FAINT, BLUE = "#22303c", "#d5dbe1", "#3d7ea6"
OURS = "uncertainty_guided"
NAMED = 12  # domains that still can be written beside their points
LEVELS = 9  # groups that still can be told apart by colour


def figure_name(facts: Mapping[str, Any]) -> str:
    """The file of a task's figure; a variant's name may hold what a file's may not."""
    words = [facts["task"]] if facts["variant"] == "default" else [facts["task"], facts["variant"]]
    return re.sub(r"[^\w.-]+", "-", "-".join(["figure", *words])) + ".png"


def draw_scores(facts: Mapping[str, Any]) -> bytes:
    """A PNG with a panel for each pair of our score, the Bayesian one and the error; a point is a domain's mean over seeds."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ours, bayes = means(facts, OURS), means(facts, BAYES)
    panels = [("error of the model, %", "domain uncertainty", errors(facts, OURS), ours)]
    if bayes:
        panels.insert(0, ("Bayesian uncertainty", "domain uncertainty", bayes, ours))
        panels.append(
            (
                "error of the Bayesian network, %",
                "Bayesian uncertainty",
                errors(facts, BAYES),
                bayes,
            )
        )
    groups, legend_title = group_domains(facts["domains"])
    shades = matplotlib.colormaps["viridis_r"]
    colours = {
        name: shades(0.08 + 0.84 * i / (len(groups) - 1)) if len(groups) > 1 else BLUE
        for i, name in enumerate(groups)
    }
    canvas, axes = plt.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 4.4), squeeze=False, layout="constrained"
    )
    for place, (x_label, y_label, x, y) in zip(axes[0], panels, strict=True):
        for name, domains in groups.items():
            at = [x[d] for d in domains], [y[d] for d in domains]
            place.scatter(
                *at, s=34, color=colours[name], edgecolor="white", linewidth=0.6, label=name
            )
        source = facts["source"]
        place.scatter(
            [x[source]],
            [y[source]],
            marker="*",
            s=130,
            color="white",
            edgecolor=INK,
            zorder=3,
            label=f"{source} (source)",
        )
        order = rank_correlation([x[d] for d in facts["domains"]], [y[d] for d in facts["domains"]])
        title = "no rank correlation" if order is None else f"rank correlation {order:.2f}"
        place.set_title(
            f"{title}, {len(facts['domains'])} domains", loc="left", fontsize=10, color=INK
        )
        place.set_xlabel(x_label, color=INK)
        place.set_ylabel(y_label, color=INK)
        place.spines[["top", "right"]].set_visible(False)
        place.grid(color=FAINT, linewidth=0.5)
        place.set_axisbelow(True)
        place.margins(0.12)
        if len(facts["domains"]) <= NAMED:
            _name_points(place, {domain: (x[domain], y[domain]) for domain in facts["domains"]})
        place.locator_params(nbins=5)
        place.tick_params(colors=INK)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if len(groups) < 2:
        handles, labels = handles[-1:], labels[-1:]
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles), "frameon": False}
    canvas.legend(handles, labels, title=legend_title, fontsize=8, title_fontsize=8, **below)
    canvas.suptitle(
        f"{facts['task']}: {OURS}, one pass, beside {BAYES}"
        if bayes
        else f"{facts['task']}: {OURS}",
        color=INK,
    )
    content = io.BytesIO()
    canvas.savefig(content, format="png", dpi=130)
    plt.close(canvas)
    return content.getvalue()


def _name_points(place: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each name above its point, or below it where a point close above is in the way."""
    (left, right), (bottom, top) = place.get_xlim(), place.get_ylim()
    for name, (x, y) in points.items():
        crowded = any(
            abs(x - a) < (right - left) / 7 and 0 < b - y < (top - bottom) / 12
            for a, b in points.values()
        )
        where: dict[str, Any] = {
            "xytext": (0, -12 if crowded else 6),
            "textcoords": "offset points",
            "ha": "center",
        }
        place.annotate(name, (x, y), fontsize=8, color=INK, **where)


def means(facts: Mapping[str, Any], name: str) -> dict[str, float]:
    """A score of each domain, the source among them, over seeds; nothing if no run has it."""
    of_seeds = [score["domains"] for _, score in scores_by_seed(facts).get(name, {}).values()]
    return (
        {d: mean_and_std([of[d]["score"] for of in of_seeds])[0] for d in of_seeds[0]}
        if of_seeds
        else {}
    )


def errors(facts: Mapping[str, Any], method: str) -> dict[str, float]:
    """1 - the metric, in percent, of each domain over seeds."""
    values = [run["values"] for run in facts["runs"] if run["method"] == method]
    return {d: 100 - 100 * mean_and_std([of[d] for of in values])[0] for d in values[0]}


def group_domains(domains: list[str]) -> tuple[dict[str, list[str]], str]:
    """Domains by what stands behind the slash in all of their names, such as a severity; else in one group."""
    parts = [domain.rpartition("/") for domain in domains]
    groups: dict[str, list[str]] = {}
    for (before, _, behind), domain in zip(parts, domains, strict=True):
        groups.setdefault(behind if before else "", []).append(domain)
    if "" in groups or not 2 <= len(groups) <= LEVELS or len(groups) == len(domains):
        return {"unseen": list(domains)}, ""
    numbers = all(name.isdigit() for name in groups)
    return dict(
        sorted(groups.items(), key=lambda group: int(group[0]))
    ) if numbers else groups, "severity" if numbers else ""
