"""Results of `unseen adapt-grid`: summary.json, table.md, runs.json, tables of the page."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.files import replace_files
from unseen.report.paper import PaperValue
from unseen.report.statistics import mean_and_std
from unseen.report.tables.table import Cell, Measurement, Table
from unseen.report.tables.text import markdown, percent, percent_with_std

Adaptation = Mapping[str, Any]  # one adapted model: method, setting, variant, seed, metrics, cost
METRICS = {"target": "accuracy", "source": "source_accuracy"}
TARGET_CAPTION = (
    "N-shot: N labelled target samples per class; all: the whole target without labels; 0-shot: "
    "before adaptation. Mean ± standard deviation over draws of the labelled samples. Small: value "
    "in the paper (ours minus the paper's)."
)
SOURCE_CAPTION = "The same models on the source test set: the accuracy lost by adaptation."


def write_adaptation_results(
    folder: Path, facts: Mapping[str, Any], adaptations: Sequence[Adaptation]
) -> list[dict[str, Any]]:
    """Write summary.json, table.md and runs.json; return the rows of summary.json."""
    rows = summarize(facts, adaptations)
    files = {
        "summary.json": json.dumps(rows, indent=1) + "\n",
        "table.md": markdown_page(facts, adaptations),
        "runs.json": json.dumps({**facts, "runs": list(adaptations)}, indent=1) + "\n",
    }
    replace_files(folder, {name: text.encode() for name, text in files.items()})
    return rows


def _by_setting(adaptations: Sequence[Adaptation]) -> dict[tuple[str, str], list[Adaptation]]:
    groups: dict[tuple[str, str], list[Adaptation]] = {}
    for one in adaptations:
        groups.setdefault((one["method"], one["setting"]), []).append(one)
    return groups


def _average_over_variants(
    facts: Mapping[str, Any], adaptations: Sequence[Adaptation], metric: str
) -> dict[int, float]:
    """Return the mean over variants for the seeds that every variant has."""
    by_seed: dict[int, dict[str, float]] = {}
    for one in adaptations:
        by_seed.setdefault(one["seed"], {})[one["variant"]] = one[metric]
    return {
        seed: statistics.fmean(values.values())
        for seed, values in by_seed.items()
        if len(values) == len(facts["variants"])
    }


def summarize(facts: Mapping[str, Any], adaptations: Sequence[Adaptation]) -> list[dict[str, Any]]:
    """Return a row for each variant, method, setting and metric.

    If there are several variants, rows of the variant "all" have their average.
    """
    rows = []

    def add(
        variant: str, name: tuple[str, str], domain: str, metric: str, by_seed: dict[int, float]
    ) -> None:
        if by_seed:
            values = list(by_seed.values())
            std = statistics.stdev(values) if len(values) > 1 else 0.0
            rows.append({
                "task": facts["task"], "variant": variant, "method": name[0], "setting": name[1],
                "domain": domain, "metric": METRICS[metric].replace("accuracy", facts["metric"]),
                "selection": "last", "mean": statistics.fmean(values), "std": std,
                "seeds": list(by_seed),
            })  # fmt: skip

    for name, group in _by_setting(adaptations).items():
        for metric in METRICS:
            for variant, about in facts["variants"].items():
                by_seed = {one["seed"]: one[metric] for one in group if one["variant"] == variant}
                add(variant, name, about["domain"], metric, by_seed)
            if len(facts["variants"]) > 1:
                by_seed = _average_over_variants(facts, group, metric)
                add("all", name, "average", metric, by_seed)
    return rows


def markdown_page(facts: Mapping[str, Any], adaptations: Sequence[Adaptation]) -> str:
    """Return all tables as one Markdown page."""
    commits = sorted({str(one["commit"]) for one in adaptations if "commit" in one})
    parts = [
        f"# {facts['task']}, adapted: {facts['metric']}, %",
        f"Command: `{facts['command']}`. Commits: {', '.join(commits)}. Mean ± std over draws of "
        "the labelled samples; in brackets the value in the paper. `N-shot`: N labelled target "
        "samples per class; `all`: the whole target without labels; `0-shot`: before adaptation. "
        "A row named after a training method is that model, fine-tuned; other methods start from "
        "the first of their starting models unless the row names another.",
        _target_or_source(facts, adaptations, "target"),
        "Source test set after adaptation:",
        _target_or_source(facts, adaptations, "source"),
        "Cost. Budgets are for two cores, one thread each; the papers trained far longer:",
        _costs(adaptations),
    ]
    if coefficients := _coefficients(adaptations):
        parts += [
            "Interpolation coefficient between the starting (0 %) and the adapted weights (100 %), "
            "chosen to keep the source accuracy:",
            coefficients,
        ]
    return "\n\n".join(parts) + "\n"


def _target_or_source(
    facts: Mapping[str, Any], adaptations: Sequence[Adaptation], metric: str
) -> str:
    several = len(facts["variants"]) > 1
    domains = [about["domain"] for about in facts["variants"].values()]
    header = ["", "labels", *domains, *(["average"] if several else []), "draws"]
    rows = []
    for (method, setting), group in _by_setting(adaptations).items():
        paper = facts["paper"].get(method, {}).get(setting, {}) if metric == "target" else {}
        row: list[Any] = [method, setting]
        for variant, about in facts["variants"].items():
            values = [one[metric] for one in group if one["variant"] == variant]
            row.append(_cell(values, paper.get(about["domain"])))
        if several:
            averages = list(_average_over_variants(facts, group, metric).values())
            row.append(_cell(averages, paper.get("average")))
        rows.append([*row, len({one["seed"] for one in group})])
    return markdown(header, rows)


def _cell(values: Sequence[float], paper: float | None) -> str:
    suffix = "" if paper is None else f" [{percent(paper)}]"
    if not values:
        return f"-{suffix}"
    return percent_with_std(*mean_and_std(values), len(values)) + suffix


def _costs(adaptations: Sequence[Adaptation]) -> str:
    rows = []
    adapted = [one for one in adaptations if one["with"]]
    for (method, setting), group in _by_setting(adapted).items():
        cpu = statistics.fmean(one["cpu_seconds"] for one in group)
        wall = statistics.fmean(one["seconds"] for one in group)
        steps = group[0]["settings"]["steps"]
        rows.append([method, setting, group[0]["with"], steps, f"{cpu:.0f}", f"{wall:.0f}"])
    return markdown(["", "labels", "adapted by", "updates", "CPU seconds", "seconds"], rows)


def _coefficients(adaptations: Sequence[Adaptation]) -> str:
    interpolated = [one for one in adaptations if one.get("keep_source") is not None]
    rows = [
        [
            method,
            setting,
            percent(group[0]["keep_source"]),
            _cell([one["share"] for one in group], None),
        ]
        for (method, setting), group in _by_setting(interpolated).items()
    ]
    header = ["", "labels", "allowed loss on held-out source, points", "coefficient, %"]
    return markdown(header, rows) if rows else ""


def adaptation_tables(rows: Sequence[Mapping[str, Any]], paper: Mapping[str, Any]) -> list[Table]:
    """Return a table of the target and one of the source for the report page.

    `rows` are those of a summary.json; `paper` has fractions by method, setting and domain.
    """
    titles = {"Adapted to a new domain": TARGET_CAPTION, "Source after adaptation": SOURCE_CAPTION}
    tables = []
    for (title, caption), of_source in zip(titles.items(), (False, True), strict=True):
        own = [row for row in rows if row["metric"].startswith("source_") is of_source]
        columns = list(dict.fromkeys((row["variant"], row["domain"]) for row in own))
        body: list[list[Cell]] = []
        for method, setting in dict.fromkeys((row["method"], row["setting"]) for row in own):
            same = [row for row in own if (row["method"], row["setting"]) == (method, setting)]
            by_variant = {row["variant"]: row for row in reversed(same)}
            values = {} if of_source else paper.get(method, {}).get(setting, {})
            cells: list[Cell] = [
                _measurement(by_variant[variant], values.get(domain))
                if variant in by_variant
                else "-"
                for variant, domain in columns
            ]
            draws = max(len(row["seeds"]) for row in same)
            body.append([f"{method}, {setting}", *cells, draws])
        if body:
            metric = own[0]["metric"].removeprefix("source_")
            header = ["method, labels", *(f"{domain}, %" for _, domain in columns), "draws"]
            task = str(rows[0]["task"])
            tables.append(Table(f"{title}: {metric}, %", header, body, caption, task))
    return tables


def _measurement(row: Mapping[str, Any], paper: float | None) -> Measurement:
    std = 100 * row["std"] if len(row["seeds"]) > 1 else math.nan
    return Measurement(100 * row["mean"], std, None if paper is None else PaperValue(100 * paper))
