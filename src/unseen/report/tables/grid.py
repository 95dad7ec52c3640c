"""Results of `unseen bench`: summary.json, table.md and runs.json."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.statistics import confidence_half_width, mean_and_std
from unseen.report.tables.grid_runs import (
    SELECTIONS,
    Run,
    VariantRuns,
    add_metrics,
    split_by_variant,
    summarize,
)
from unseen.report.tables.text import markdown, percent, value_with_std
from unseen.report.units import format_difference, format_value, is_error, with_unit

# Fields of a run's config.json that runs.json repeats.
CONFIG_FIELDS = (
    "format", "run", "preset", "loop", "settings", "model", "commit", "versions", "device",
    "processor", "threads", "trained_on",
)  # fmt: skip
MAX_COLUMNS = 8  # domains and averages; with more, methods become the columns
NOT_SIGNIFICANT = "not significant (95 % CI includes 0)"


def result_files(
    facts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows of summary.json, and the text of every file by name."""
    measured = [add_metrics(facts, run) for run in runs]
    parts = split_by_variant(facts, measured)
    rows = [row for part in parts for row in summarize(facts, part)]
    published = {**facts, "runs": [_published_fields(run) for run in measured]}
    files = {
        "summary.json": json.dumps(rows, indent=1) + "\n",
        "table.md": markdown_page(facts, parts),
        "runs.json": json.dumps(published, indent=1) + "\n",
    }
    return rows, files


def _published_fields(run: Run) -> dict[str, Any]:
    config = run["config"]
    names = ("variant", "method", "setting", "seed", "steps", "seconds", "chosen", "figures")
    fields = {name: config[name] for name in CONFIG_FIELDS if name in config}
    return {**{name: run[name] for name in names}, **fields}


def markdown_page(facts: Mapping[str, Any], parts: Sequence[VariantRuns]) -> str:
    """Return all tables as one Markdown page, a section for each variant."""
    runs = [run for part in parts for run in part.runs]
    seeds = sorted({run["seed"] for run in runs})
    commits = sorted({str(run["config"].get("commit")) for run in runs})
    samples = facts.get("samples")
    header = [
        f"Command: `{facts['command']}`{_carried_over(parts)}.",
        f"Seeds: {', '.join(map(str, seeds))}. Commits: {', '.join(commits)}.",
        "Last checkpoint unless a column says otherwise; mean ± std over seeds; in brackets the "
        "value in the paper.",
        f"At most {samples} random samples of each domain." if samples else "",
        _processors(parts),
        "Seconds: training time, one thread per run, under the machine's load at the time.",
    ]
    sections = [
        f"# {facts['task']}: {with_unit(facts['metric'], facts['metric'])}",
        " ".join(filter(None, header)),
    ]
    for part in parts:
        if len(parts) > 1:
            sections.append(f"## {part.variant}" if part.source else "## all variants together")
        sections += _section(part, facts.get("first_row"))
    if any("oracle" in run["figures"] for run in runs):
        sections.append("\n".join(f"- {name}: {text}" for name, text in SELECTIONS.items()))
    sections.append(
        "95 % CI: Student's t interval of the mean paired difference over seeds. It covers "
        "variation between seeds, not between data sets. With three seeds its half-width is 2.5 "
        "times the standard deviation of the differences; smaller differences are not significant."
    )
    return "\n\n".join(sections) + "\n"


def _unmerged_runs(parts: Sequence[VariantRuns]) -> list[Run]:
    return [run for part in parts if part.source for run in part.runs]


def _carried_over(parts: Sequence[VariantRuns]) -> str:
    runs = _unmerged_runs(parts)
    count = sum("records" not in run for run in runs)
    return f" ({count} of {len(runs)} runs from an earlier publication)" if count else ""


def _processors(parts: Sequence[VariantRuns]) -> str:
    """Return a sentence on the processors if there are several: rounding differs between them."""
    counts = Counter(run["config"].get("processor", "unknown") for run in _unmerged_runs(parts))
    if len(counts) < 2:
        return ""
    kinds = "; ".join(f"{count} runs on {kind}" for kind, count in counts.most_common())
    return (
        "Rounding differs between processors, so equal seeds on different processors are not "
        f"paired exactly: {kinds}."
    )


def _section(part: VariantRuns, first_row: str | None) -> list[str]:
    groups = part.groups()
    wide = len(part.domains) + len(part.averages) > MAX_COLUMNS
    section = [_methods_as_columns(part, groups) if wide else _methods_as_rows(part, groups)]
    if selections := _selection_table(groups):
        section += ["Checkpoint selection:", selections]
    base = groups[0][0]["label"]
    if (first_row is None or base == first_row) and (comparison := _comparison(part, groups)):
        section += [f"Difference to {base}, paired by seed:", comparison]
    return section


def _domains_and_averages(part: VariantRuns) -> list[str]:
    return [*([part.source] if part.source else []), *part.domains, *part.averages]


def _methods_as_rows(part: VariantRuns, groups: Sequence[list[Run]]) -> str:
    names = _domains_and_averages(part)
    header = ["", *(_heading(part, name) for name in names), "updates", "seconds", "seeds"]
    rows = [
        [runs[0]["label"], *(_cell(part, runs, name) for name in names), *_cost(runs)]
        for runs in groups
    ]
    return markdown(header, rows)


def _methods_as_columns(part: VariantRuns, groups: Sequence[list[Run]]) -> str:
    header = ["", *(runs[0]["label"] for runs in groups)]
    rows = [
        [_heading(part, name), *(_cell(part, runs, name) for runs in groups)]
        for name in _domains_and_averages(part)
    ]
    costs = zip(("updates", "seconds", "seeds"), *(_cost(runs) for runs in groups), strict=True)
    return markdown(header, [*rows, *(list(row) for row in costs)])


def _heading(part: VariantRuns, name: str) -> str:
    return f"{name} (source)" if name == part.source and name != "source" else name


def _cost(runs: Sequence[Run]) -> list[Any]:
    seconds, _ = mean_and_std([run["seconds"] for run in runs])
    return [runs[0]["steps"], f"{seconds:.0f}", len(runs)]


def _cell(part: VariantRuns, runs: Sequence[Run], name: str) -> str:
    paper = _paper_cell(runs[0]["paper"], part, name)
    values = [run["figures"]["last"][name] for run in runs]
    shown = value_with_std(*mean_and_std(values), len(runs), runs[0]["metric"])
    return shown + (f" [{paper}]" if paper else "")


def _paper_cell(paper: Mapping[str, float], part: VariantRuns, name: str) -> str:
    """Return the paper's value for a domain or an average; a remark if its domains differ."""
    averaged = part.averages.get(name)
    if averaged is not None and all(d in paper for d in averaged):
        return percent(math.fsum(paper[d] for d in averaged) / len(averaged))
    if name in paper:
        return percent(paper[name]) + (" over its own domains" if averaged is not None else "")
    return ""


def _selection_table(groups: Sequence[list[Run]]) -> str:
    rows = []
    for runs in groups:
        if all("oracle" in run["figures"] for run in runs):
            cells = []
            for name in SELECTIONS:
                values = [run["figures"][name]["average"] for run in runs]
                cells.append(value_with_std(*mean_and_std(values), len(values), runs[0]["metric"]))
            rows.append([runs[0]["label"], *cells])
    return markdown(["average, unseen", *SELECTIONS], rows) if rows else ""


def _comparison(part: VariantRuns, groups: Sequence[list[Run]]) -> str:
    """Return the difference of every row to the first, paired by seed."""
    base, *others = groups
    metric = base[0]["metric"]
    base_by_seed = {run["seed"]: run["figures"]["last"] for run in base}
    rows = []
    for runs in others:
        pairs = [
            (run["figures"]["last"], base_by_seed[run["seed"]])
            for run in runs
            if run["seed"] in base_by_seed
        ]
        if not pairs:
            continue
        gains = [values["average"] - reference["average"] for values, reference in pairs]
        half, (mean, _) = confidence_half_width(gains), mean_and_std(gains)
        higher = sum(math.fsum(v[d] - ref[d] for v, ref in pairs) > 0 for d in part.domains)
        rows.append([
            runs[0]["label"],
            format_difference(mean, metric),
            "one seed" if half is None else f"± {format_value(half, metric)}",
            _verdict(mean, half),
            f"{higher} of {len(part.domains)}",
            ", ".join(format_difference(gain, metric) for gain in gains),
        ])  # fmt: skip
    unit = "" if is_error(metric) else ", points"
    header = [f"average, unseen{unit}", "mean", "95 % CI", "verdict", "domains higher", "by seed"]
    return markdown(header, rows) if rows else ""


def _verdict(mean: float, half: float | None) -> str:
    if half is None:
        return "-"
    if abs(mean) <= half:
        return NOT_SIGNIFICANT
    return "higher" if mean > 0 else "lower"
