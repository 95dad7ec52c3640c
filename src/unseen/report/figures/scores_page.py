"""Uncertainty of domains from `unseen uncertainty`: against the error, and against a Bayesian network's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.report.figures.scores import errors, group_domains, means
from unseen.report.figures.svg import INK, MARKERS, SERIES, Drawing, Panel, Plate
from unseen.report.groups import OURS
from unseen.report.statistics import rank_correlation
from unseen.report.tables.scores import BAYES, METRICS, scores_by_seed, summarize
from unseen.report.tables.table import Cell, Figure, Table

LEAD = (
    "How unfamiliar a domain is, told without labels by one pass through the model. A useful score rises with the error that the "
    "labels would have shown."
)
NAMED = 10  # domains that still can be written beside their points
GROUPS = len(SERIES)


def blocks(facts: Mapping[str, Any]) -> list[Table | Plate]:
    """The figure and both tables of one comparison."""
    told = facts["task"] if facts["variant"] == "default" else f"{facts['task']}/{facts['variant']}"
    return [*_plates(facts, told), _by_domain(facts, told), _worth(facts, told)]


def _plates(facts: Mapping[str, Any], told: str) -> list[Plate]:
    ours, bayes = means(facts, OURS), means(facts, BAYES)
    if not ours:
        return []
    panels = [
        _scatter(facts, "error of the model, %", errors(facts, OURS), "domain uncertainty", ours)
    ]
    if bayes:
        panels.append(_scatter(facts, "Bayesian uncertainty", bayes, "domain uncertainty", ours))
        panels.append(
            _scatter(
                facts,
                "error of the Bayesian network, %",
                errors(facts, BAYES),
                "Bayesian uncertainty",
                bayes,
            )
        )
    groups = _groups(facts)
    caption = (
        "Each point is a domain, a mean over seeds; the hollow star is the source. Domain uncertainty is how far the learned "
        "spread σ "
        "on a domain deviates from that on the source, from one pass. Points that rise to the right are what one hopes for: the "
        "domains with more errors have the higher score, though no label was looked at. The rank correlation is 1 where both put "
        "the domains in the same order"
        + (
            ", and the Bayesian network, which takes many passes, is what the score is compared with."
            if bayes
            else "."
        )
    )
    return [
        Plate(
            f"{told}: uncertainty and error",
            caption,
            panels,
            legend=list(groups) if len(groups) > 1 else [],
        )
    ]


def _groups(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    found, _ = group_domains(facts["domains"])
    return found if len(found) <= GROUPS else {"": list(facts["domains"])}


def _scatter(
    facts: Mapping[str, Any],
    x_label: str,
    x: Mapping[str, float],
    y_label: str,
    y: Mapping[str, float],
) -> Panel:
    drawing = Drawing(3.1)
    for i, domains in enumerate(_groups(facts).values()):
        drawing.axes.scatter(
            [x[d] for d in domains],
            [y[d] for d in domains],
            s=26,
            color=SERIES[i],
            marker=MARKERS[i],
        )
    source = facts["source"]
    drawing.axes.scatter(
        [x[source]], [y[source]], s=90, marker="*", facecolor="none", edgecolor=INK
    )
    names = [source, *(facts["domains"] if len(facts["domains"]) <= NAMED else [])]
    for domain in names:
        drawing.axes.annotate(
            domain,
            (x[domain], y[domain]),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=INK,
        )
    drawing.axes.set(xlabel=x_label, ylabel=y_label)
    drawing.axes.grid(visible=True)
    drawing.axes.margins(0.16)
    order = rank_correlation([x[d] for d in facts["domains"]], [y[d] for d in facts["domains"]])
    title = f"rank correlation {order:.2f}" if order is not None else "no rank correlation"
    return drawing.panel(
        f"{y_label} against {x_label} of {len(facts['domains'])} domains: {title}", title
    )


def _by_domain(facts: Mapping[str, Any], told: str) -> Table:
    """A row for each domain: the metric of each model, then each score."""
    every = scores_by_seed(facts)
    models = list(dict.fromkeys(run["method"] for run in facts["runs"]))
    rows: list[list[Cell]] = []
    for domain in (facts["source"], *facts["domains"]):
        measured = [
            Figure.of([run["values"][domain] for run in facts["runs"] if run["method"] == m])
            for m in models
        ]
        name = f"{domain} (source)" if domain == facts["source"] else domain
        rows.append([name, *measured, *(f"{means(facts, score)[domain]:.4g}" for score in every)])
    header = [
        "domain",
        *(f"{facts['metric']} of {m}, %" for m in models),
        *(f"score {score}" for score in every),
    ]
    caption = "What each model is worth on each domain, and what each score says of it; higher means further from the source."
    return Table("Scores by domain", header, rows, caption, told)


def _worth(facts: Mapping[str, Any], told: str) -> Table:
    """A row for each score: does it follow the error, and what does it cost?"""
    found: dict[str, dict[str, str]] = {}
    for row in summarize(facts):
        if row["domain"] == "average":
            digits = 1 if row["metric"] == "ms_per_1000" else 2
            found.setdefault(row["method"], {})[row["metric"]] = f"{row['mean']:.{digits}f}"
    rows: list[list[Cell]] = [
        [name, *(of.get(metric, "-") for metric in METRICS)] for name, of in found.items()
    ]
    caption = (
        "With error, with bnn: rank correlation over domains of a score with the model's error, and with a Bayesian network's "
        "score. "
        "AUROC: the chance that a sample of an unseen domain scores above one of the source, 0.5 being a coin. FPR95: the "
        "share of "
        "unseen samples that pass as source where 95 % of the source pass. The last column is the time of prediction and "
        "score, in "
        "plain predictions."
    )
    return Table("What the scores are worth", ["score", *METRICS.values()], rows, caption, told)
