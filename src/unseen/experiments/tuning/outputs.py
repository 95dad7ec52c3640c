"""What a search writes: the best settings, and every configuration that was tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from unseen.experiments.tuning.space import settings_from
from unseen.experiments.tuning.study import ERROR, SHIFTS, Search, counted
from unseen.files import json_bytes, replace_files
from unseen.report.units import format_value

BEST, LIST, TABLE = "best.toml", "trials.json", "table.md"


def write_outputs(search: Search, study: Any) -> dict[str, Any]:
    """Write best.toml, trials.json and table.md; return the summary."""
    rows = [_row(trial) for trial in counted(study)]
    finished = [row for row in rows if row["state"] == "complete"]
    sign = 1 if search.facts["less_is_better"] else -1
    best = min(finished, key=lambda row: (sign * row["value"], row["trial"]), default=None)
    files = {
        LIST: json_bytes({**search.facts, "trials": rows}),
        TABLE: _markdown(search, rows, best).encode(),
    }
    if best is not None:
        files[BEST] = _best_toml(search, best, len(rows)).encode()
    replace_files(search.folder, files)
    return {
        "out": str(search.folder),
        "task": search.facts["task"],
        "method": search.facts["method"],
        "metric": search.facts["metric"],
        "measured_on": shift_names(search),
        "trials": rows,
        "tried": sum(row["state"] in ("complete", "pruned", "fail") for row in rows),
        "best": best,
        "config": str(search.folder / BEST) if best is not None else None,
    }


def shift_names(search: Search) -> str:
    """Describe what the trials were measured on."""
    if search.facts["on_targets"]:
        return f"synthetic shifts of {search.facts['trained_on']}"
    return f"generic shifts of the held-out source of {search.facts['task']}"


def _row(trial: Any) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": trial.state.name.lower(),
        "value": trial.value,
        "settings": trial.params,
        "reports": {str(k): v for k, v in trial.intermediate_values.items()},
        "shifts": trial.user_attrs.get(SHIFTS),
        "error": trial.user_attrs.get(ERROR),
    }


def table_rows(result: Mapping[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Return the header and rows of a table of all trials, the best first."""
    names = list(dict.fromkeys(name for row in result["trials"] for name in row["settings"]))
    metric = result["metric"]

    def order(row: Mapping[str, Any]) -> tuple[bool, float]:
        value = row["value"]
        return value is None, 0 if value is None else (value if metric == "mae" else -value)

    rows: list[list[object]] = [
        [
            row["trial"],
            *(_short(row["settings"].get(name)) for name in names),
            "-" if row["value"] is None else format_value(row["value"], metric),
            row["error"] or row["state"],
        ]
        for row in sorted(result["trials"], key=order)
    ]
    return ["trial", *names, metric, ""], rows


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _markdown(search: Search, rows: list[dict[str, Any]], best: Mapping[str, Any] | None) -> str:
    header, cells = table_rows({"trials": rows, "metric": search.facts["metric"]})
    lines = [
        f"# {search.facts['method']} on {search.facts['task']}",
        "",
        f"Every configuration that was tried, measured by {search.facts['metric']} on "
        f"{shift_names(search)} ({search.facts['samples']} samples of each), seed "
        f"{search.facts['seed']}. No unseen domain of a benchmark was used.",
        "",
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(map(str, row)) + " |" for row in cells),
    ]
    if best is not None:
        lines += ["", f"Best: trial {best['trial']}; its settings are in {BEST}."]
    return "\n".join(lines) + "\n"


def _best_toml(search: Search, best: Mapping[str, Any], tried: int) -> str:
    facts = search.facts
    settings = settings_from(facts["set"], best["settings"])
    value = format_value(best["value"], facts["metric"])
    return (
        f"# The best of {tried} trials: {facts['metric']} {value} on {shift_names(search)}.\n"
        "# For `unseen train --config` and `unseen bench`.\n"
        f"task = {json.dumps(facts['task'])}\n"
        f"preset = {json.dumps(facts['preset'])}\n\n"
        "[[row]]\n"
        f"method = {json.dumps(facts['method'])}\n"
        'setting = "tuned"\n'
        f"set = {toml(settings)}\n"
    )


def toml(value: Any) -> str:
    """Return a setting as TOML; "none" stands for None, as on the command line."""
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        entries = (f"{json.dumps(str(k))} = {toml(v)}" for k, v in value.items())
        return "{ " + ", ".join(entries) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)  # numbers, texts and booleans are written as in JSON
