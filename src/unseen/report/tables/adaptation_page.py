"""The few-shot table from `unseen few-shot`: what a handful of labels of a new domain is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.paper import Reported
from unseen.report.tables.table import Cell, Figure, Table

LEAD = "A model learned from one domain is adapted with a few labelled samples of another, and examined on that one's test data."

ADAPTED = (
    "N-shot: N labelled samples a class; all: the whole new domain without labels; 0-shot: the start as it is. Mean ± standard "
    "deviation over draws of the labelled samples. The small line is what the paper reports, and in brackets ours minus that."
)
FORGOT = "The same models on the test data of the domain they first learned from: what adapting made them forget."


def blocks(rows: Sequence[Mapping[str, Any]], paper: Mapping[str, Any]) -> list[Table]:
    """A table of the new domain and one of the source; `paper` is by method, setting and domain, in 0..1."""
    tables = []
    told = {"Adapted to a new domain": ADAPTED, "What became of the source": FORGOT}
    source = {row["metric"] for row in rows if row["metric"].startswith("source_")}
    for (title, caption), of_source in zip(told.items(), (False, True), strict=True):
        kept = [row for row in rows if (row["metric"] in source) == of_source]
        domains = list(dict.fromkeys((row["variant"], row["domain"]) for row in kept))
        body: list[list[Cell]] = []
        for method, setting in dict.fromkeys((row["method"], row["setting"]) for row in kept):
            cells: list[Cell] = []
            for variant, domain in domains:
                row = next(
                    (
                        r
                        for r in kept
                        if (r["method"], r["setting"], r["variant"]) == (method, setting, variant)
                    ),
                    None,
                )
                reported = None if of_source else paper.get(method, {}).get(setting, {}).get(domain)
                cells.append("-" if row is None else _figure(row, reported))
            draws = max(
                len(r["seeds"]) for r in kept if (r["method"], r["setting"]) == (method, setting)
            )
            body.append([f"{method}, {setting}", *cells, draws])
        if body:
            metric = next(row["metric"] for row in kept).removeprefix("source_")
            header = ["method, labels", *(f"{domain}, %" for _, domain in domains), "draws"]
            tables.append(
                Table(f"{title}: {metric}, %", header, body, caption, str(rows[0]["task"]))
            )
    return tables


def _figure(row: Mapping[str, Any], reported: float | None) -> Figure:
    paper = None if reported is None else Reported(100 * reported)
    return Figure(
        100 * row["mean"], 100 * row["std"] if len(row["seeds"]) > 1 else float("nan"), paper
    )
