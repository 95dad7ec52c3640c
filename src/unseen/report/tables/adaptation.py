"""The tables of adapted models: how good on the target beside the paper's figures, and what became of the source."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.report.tables import markdown, percent

Cell = Mapping[str, Any]
METRICS = {"target": "accuracy", "source": "source_accuracy"}


def write_adaptation_results(
    folder: Path, facts: Mapping[str, Any], cells: Sequence[Cell]
) -> list[dict[str, Any]]:
    """Write summary.json, table.csv, table.md and runs.json; the rows of summary.json are given back."""
    rows = summarize(facts, cells)
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "seeds": " ".join(map(str, row["seeds"]))} for row in rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "summary.json": json.dumps(rows, indent=1) + "\n",
        "table.csv": table.getvalue(),
        "table.md": page(facts, cells),
        "runs.json": json.dumps({**facts, "runs": list(cells)}, indent=1) + "\n",
    }.items():
        part = folder / f".{name}.part"
        part.write_text(text)
        part.replace(folder / name)
    return rows


def groups_of(cells: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    """The cells of each method and setting."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["method"], cell["setting"]), []).append(cell)
    return groups


def averaged(facts: Mapping[str, Any], cells: Sequence[Cell], figure: str) -> dict[int, float]:
    """Of the seeds that every variant has: the mean of the figure over the variants."""
    by_seed: dict[int, dict[str, float]] = {}
    for cell in cells:
        by_seed.setdefault(cell["seed"], {})[cell["variant"]] = cell[figure]
    return {
        seed: statistics.fmean(found.values())
        for seed, found in by_seed.items()
        if len(found) == len(facts["variants"])
    }


def summarize(facts: Mapping[str, Any], cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One row for each variant, method, setting and metric; with several variants also their average, as variant all."""
    rows = []

    def add(
        variant: str, name: tuple[str, str], domain: str, figure: str, of_seed: Mapping[int, float]
    ) -> None:
        if of_seed:
            mean, std = mean_and_std(list(of_seed.values()))
            metric = METRICS[figure].replace("accuracy", facts["metric"])
            rows.append({"task": facts["task"], "variant": variant, "method": name[0], "setting": name[1], "domain": domain,
                         "metric": metric, "selection": "last", "mean": mean, "std": std, "seeds": list(of_seed)})  # fmt: skip

    for name, group in groups_of(cells).items():
        for figure in METRICS:
            for variant, told in facts["variants"].items():
                here = {cell["seed"]: cell[figure] for cell in group if cell["variant"] == variant}
                add(variant, name, told["domain"], figure, here)
            if len(facts["variants"]) > 1:
                add("all", name, "average", figure, averaged(facts, group, figure))
    return rows


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def page(facts: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """The tables as one page of Markdown."""
    commits = sorted({str(cell["commit"]) for cell in cells if "commit" in cell})
    told = [
        f"# {facts['task']}, adapted: {facts['metric']}, %",
        f"Made by `{facts['command']}` from what its adaptations measured; commit {', '.join(commits)}; mean ± std over draws of "
        "the labelled samples; in brackets what the paper reports. `N-shot`: N labelled target samples a class; `all`: the whole "
        "target without labels; `0-shot`: the start as it is. A name that is a way to train is that start, fine-tuned; the other "
        "methods begin from the first of their starts unless the row says another.",
        _table(facts, cells, "target"),
        "What became of the source, on its test set:",
        _table(facts, cells, "source"),
        "What it took. These are budgets for two cores, one thread each; the papers' own methods trained far longer:",
        _costs(cells),
    ]
    if shares := _shares(cells):
        told += [
            "How much of the way from the start was gone where the source was to be kept:",
            shares,
        ]
    return "\n\n".join(told) + "\n"


def _table(facts: Mapping[str, Any], cells: Sequence[Cell], figure: str) -> str:
    several = len(facts["variants"]) > 1
    header = [
        "",
        "labels",
        *(told["domain"] for told in facts["variants"].values()),
        *(["average"] if several else []),
        "draws",
    ]
    rows = []
    for (method, setting), group in groups_of(cells).items():
        of_paper = facts["paper"].get(method, {}).get(setting, {}) if figure == "target" else {}
        row: list[Any] = [method, setting]
        for variant, told in facts["variants"].items():
            here = [cell[figure] for cell in group if cell["variant"] == variant]
            row.append(_spread(here, of_paper.get(told["domain"])))
        if several:
            row.append(
                _spread(list(averaged(facts, group, figure).values()), of_paper.get("average"))
            )
        rows.append([*row, len({cell["seed"] for cell in group})])
    return markdown(header, rows)


def _spread(values: Sequence[float], reported: float | None) -> str:
    beside = "" if reported is None else f" [{percent(reported)}]"
    if not values:
        return f"-{beside}"
    mean, std = mean_and_std(values)
    return (f"{percent(mean)} ± {percent(std)}" if len(values) > 1 else percent(mean)) + beside


def _costs(cells: Sequence[Cell]) -> str:
    rows = []
    for (method, setting), group in groups_of([cell for cell in cells if cell["with"]]).items():
        spent = statistics.fmean(cell["cpu_seconds"] for cell in group)
        took = statistics.fmean(cell["seconds"] for cell in group)
        rows.append(
            [
                method,
                setting,
                group[0]["with"],
                group[0]["settings"]["steps"],
                f"{spent:.0f}",
                f"{took:.0f}",
            ]
        )
    return markdown(["", "labels", "adapted by", "updates", "CPU seconds", "seconds"], rows)


def _shares(cells: Sequence[Cell]) -> str:
    rows = []
    for (method, setting), group in groups_of(
        [cell for cell in cells if cell.get("keep_source") is not None]
    ).items():
        lost = percent(group[0]["keep_source"])
        rows.append([method, setting, lost, _spread([cell["share"] for cell in group], None)])
    return (
        markdown(["", "labels", "points the held-out source may lose", "% of the way"], rows)
        if rows
        else ""
    )
