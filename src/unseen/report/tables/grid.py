"""A grid's results on disk: summary.json, table.md, table.csv, runs.json."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.report.statistics import confidence_half_width, mean_and_std
from unseen.report.tables import markdown, percent
from unseen.report.tables.grid_runs import SELECTIONS, Part, measured_run, parts_of, summarize

# What runs.json tells of a run's configuration.
CONFIG_FIELDS = (
    "run",
    "preset",
    "loop",
    "settings",
    "model",
    "commit",
    "versions",
    "device",
    "processor",
    "threads",
    "trained_on",
)
WIDE = 8  # figures in a row; more of them stand below each other, with a column for each method


def result_pages(
    facts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of summary.json, and the text of every file, by name."""
    measured = [measured_run(facts, run) for run in runs]
    parts = parts_of(facts, measured)
    rows = [row for part in parts for row in summarize(facts, part)]
    pages = {
        "summary.json": json.dumps(rows, indent=1) + "\n",
        "table.csv": as_csv(rows),
        "table.md": page(facts, parts),
        "runs.json": json.dumps({**facts, "runs": [_facts_of(run) for run in measured]}, indent=1)
        + "\n",
    }
    return rows, pages


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of a summary, for a spreadsheet."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "seeds": " ".join(map(str, row["seeds"]))} for row in rows)
    return out.getvalue()


def _facts_of(run: Mapping[str, Any]) -> dict[str, Any]:
    config = run["config"]
    kept = {k: config[k] for k in CONFIG_FIELDS if k in config}
    same = {
        k: run[k]
        for k in ("variant", "method", "setting", "seed", "steps", "seconds", "chosen", "figures")
    }
    return {**same, **kept}


# ------------------------------------------------------------------------------------------------------ the page


def page(facts: Mapping[str, Any], parts: Sequence[Part]) -> str:
    """All tables as one page of Markdown, a section for each variant."""
    runs = [run for part in parts for run in part.runs]
    seeds = sorted({run["seed"] for run in runs})
    commits = sorted({str(run["config"].get("commit")) for run in runs})
    told = [
        f"# {facts['task']}: {facts['metric']}, %",
        f"Made by `{facts['command']}` from the records of its runs{_carried(parts)}; seeds {', '.join(map(str, seeds))}; commit "
        f"{', '.join(commits)}; last checkpoints unless a column says otherwise; mean ± std over seeds; in brackets what the "
        f"paper reports. {_looked_at(facts)}{_computed_by(parts)}"
        f"Seconds are of training, one thread a run, on whatever else the machine was doing.",
    ]
    for part in parts:
        if len(parts) > 1:
            told.append(f"## {part.variant}" if part.source else "## all variants together")
        told += _section(part, facts.get("first_row"))
    if any("oracle" in run["figures"] for run in runs):
        told.append("\n".join(f"- {name}: {what}" for name, what in SELECTIONS.items()))
    told.append(
        "The intervals are Student's t over paired seeds: they hold the mean difference between seeds, not between data sets. "
        "With three seeds one is 2.5 times the standard deviation of the differences, so only differences above that are told "
        "apart."
    )
    return "\n\n".join(told) + "\n"


def _each_once(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [
        run for part in parts if part.source for run in part.runs
    ]  # all variants together have no source


def _carried(parts: Sequence[Part]) -> str:
    runs = _each_once(parts)
    count = sum("records" not in run for run in runs)
    return f", {count} of {len(runs)} as published earlier" if count else ""


def _computed_by(parts: Sequence[Part]) -> str:
    """Where runs of one seed may differ because processors round differently."""
    kinds = Counter(
        run["config"].get("processor", "one that the run does not name")
        for run in _each_once(parts)
    )
    if len(kinds) < 2:
        return ""
    told = "; ".join(f"{count} runs on {kind}" for kind, count in kinds.most_common())
    return f"Processors round differently, and a seed does not tie runs of two of them together: {told}. "


def _looked_at(facts: Mapping[str, Any]) -> str:
    return (
        f"At most {facts['samples']} random samples of each domain. "
        if facts.get("samples")
        else ""
    )


def _section(part: Part, first_row: str | None) -> list[str]:
    groups = part.groups()
    told = [
        _across(part, groups)
        if len(part.domains) + len(part.averages) <= WIDE
        else _down(part, groups)
    ]
    if selections := _selection_table(groups):
        told += ["Which checkpoint:", selections]
    base = groups[0][0]["label"]
    if (first_row is None or base == first_row) and (compared := _comparison(part, groups)):
        told += [f"Against {base}, seed by seed:", compared]
    return told


def _names(part: Part) -> list[str]:
    return [*([part.source] if part.source else []), *part.domains, *part.averages]


def _across(part: Part, groups: Sequence[list[dict[str, Any]]]) -> str:
    """A row for each method."""
    header = ["", *(_heading(part, name) for name in _names(part)), "updates", "seconds", "seeds"]
    return markdown(
        header,
        [
            [runs[0]["label"], *(_cell(part, runs, n) for n in _names(part)), *_cost(runs)]
            for runs in groups
        ],
    )


def _down(part: Part, groups: Sequence[list[dict[str, Any]]]) -> str:
    """A column for each method."""
    header = ["", *(runs[0]["label"] for runs in groups)]
    body = [
        [_heading(part, name), *(_cell(part, runs, name) for runs in groups)]
        for name in _names(part)
    ]
    costs = zip(("updates", "seconds", "seeds"), *(_cost(runs) for runs in groups), strict=True)
    return markdown(header, [*body, *(list(row) for row in costs)])


def _heading(part: Part, name: str) -> str:
    return f"{name} (source)" if name == part.source else name


def _cost(runs: Sequence[Mapping[str, Any]]) -> list[Any]:
    seconds, _ = mean_and_std([run["seconds"] for run in runs])
    return [runs[0]["steps"], f"{seconds:.0f}", len(runs)]


def _cell(part: Part, runs: Sequence[Mapping[str, Any]], name: str) -> str:
    reported = paper_figure(runs[0]["paper"], part, name)
    return _spread([run["figures"]["last"][name] for run in runs]) + (
        f" [{reported}]" if reported else ""
    )


def paper_figure(paper: Mapping[str, float], part: Part, name: str) -> str:
    """What the paper reports for a domain or an average: of the same domains, else of its own, which is said."""
    over = part.averages.get(name)
    if over is not None and all(d in paper for d in over):
        return percent(math.fsum(paper[d] for d in over) / len(over))
    if name in paper:
        return percent(paper[name]) + (" over its own domains" if over is not None else "")
    return ""


def _spread(values: Sequence[float]) -> str:
    mean, std = mean_and_std(values)
    return f"{percent(mean)} ± {percent(std)}" if len(values) > 1 else percent(mean)


def _selection_table(groups: Sequence[list[dict[str, Any]]]) -> str:
    rows = []
    for runs in groups:
        if all("oracle" in run["figures"] for run in runs):
            rows.append(
                [
                    runs[0]["label"],
                    *(
                        _spread([run["figures"][name]["average"] for run in runs])
                        for name in SELECTIONS
                    ),
                ]
            )
    return markdown(["average, unseen", *SELECTIONS], rows) if rows else ""


def _verdict(mean: float, half: float) -> str:
    return "cannot be told apart" if abs(mean) <= half else "above" if mean > 0 else "below"


def _comparison(part: Part, groups: Sequence[list[dict[str, Any]]]) -> str:
    """Every row against the first, seed by seed."""
    base, *others = groups
    of_seed = {run["seed"]: run["figures"]["last"] for run in base}
    rows = []
    for runs in others:
        pairs = [
            (run["figures"]["last"], of_seed[run["seed"]]) for run in runs if run["seed"] in of_seed
        ]
        if not pairs:
            continue
        gains = [ours["average"] - theirs["average"] for ours, theirs in pairs]
        half, (mean, _) = confidence_half_width(gains), mean_and_std(gains)
        above = sum(
            math.fsum(ours[d] - theirs[d] for ours, theirs in pairs) > 0 for d in part.domains
        )
        told = ["one seed", "-"] if half is None else [f"± {100 * half:.1f}", _verdict(mean, half)]
        by_seed = ", ".join(f"{100 * gain:+.1f}" for gain in gains)
        rows.append(
            [
                runs[0]["label"],
                f"{100 * mean:+.1f}",
                *told,
                f"{above} of {len(part.domains)}",
                by_seed,
            ]
        )
    header = [
        "average, unseen, points",
        "mean",
        "95 % interval",
        "so it is",
        "domains above",
        "by seed",
    ]
    return markdown(header, rows) if rows else ""
