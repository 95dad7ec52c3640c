"""A grid's tables, from the records of its runs alone: summary.json, table.md, table.csv, runs.json."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from unseen.report.figures import mean_and_std
from unseen.report.tables import markdown, percent

SELECTIONS = {
    "last": "the last checkpoint",
    "source-val": "the kept checkpoint that is best on held-out source data",
    "oracle": "the kept checkpoint that is best on the targets themselves: not a fair choice, an upper bound",
}


def write_results(folder: Path, facts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Write every table of the runs; the rows of summary.json are given back."""
    if not runs:
        return []
    measured = [_measured(facts, run) for run in runs]
    rows = _summary(facts, measured)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "table.csv").write_text(_csv(rows))
    (folder / "table.md").write_text(_page(facts, measured, rows))
    (folder / "runs.json").write_text(json.dumps({**facts, "runs": [_facts_of(m) for m in measured]}, indent=1) + "\n")
    return rows


def select(values: Mapping[int, Mapping[str, float]], held_out: Mapping[int, float], domains: Sequence[str]) -> dict[str, int]:
    """The step each selection chooses, from the figures of every kept step; of equals the later."""
    steps = sorted(values)
    chosen = {"last": steps[-1]}
    if len(steps) > 1:
        seen = [step for step in steps if step in held_out]
        chosen["source-val"] = max(seen, key=lambda step: (held_out[step], step))
        chosen["oracle"] = max(steps, key=lambda step: (math.fsum(values[step][d] for d in domains), step))
    return chosen


def interval(differences: Sequence[float], level: float = 0.95) -> float | None:
    """Half the width of the interval that holds the mean difference, from paired runs by Student's t; None of one run."""
    if len(differences) < 2:
        return None
    _, std = mean_and_std(differences)
    return float(student.ppf((1 + level) / 2, len(differences) - 1)) * std / math.sqrt(len(differences))


def _measured(facts: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """A run's figures by selection and domain, averages among them."""
    values: dict[int, dict[str, float]] = {}
    held_out: dict[int, float] = {}
    pace: list[float] = []
    for record in run["records"]:
        if record["metric"] == facts["metric"] and record["split"] == "test":
            values.setdefault(record["step"], {})[record["domain"]] = record["value"]
        elif record["metric"] == facts["metric"] and record["split"] == "val":
            held_out[record["step"]] = record["value"]
        elif record["metric"] == "seconds_per_step":
            pace.append(record["value"])
    wanted = {*facts["domains"], facts["source"]}
    values = {step: figures for step, figures in values.items() if wanted <= set(figures)}  # a domain may have come later
    chosen = select(values, held_out, facts["domains"])
    figures = {name: _with_averages(facts, values[step]) for name, step in chosen.items()}
    steps = run["config"]["loop"]["steps"]
    return {**run, "figures": figures, "chosen": chosen, "steps": steps, "seconds": pace[-1] * steps if pace else math.nan}


def _with_averages(facts: Mapping[str, Any], by_domain: Mapping[str, float]) -> dict[str, float]:
    named = {"average": facts["domains"], **facts["averages"]}
    averages = {
        name: math.fsum(by_domain[d] for d in domains) / len(domains)
        for name, domains in named.items()
        if set(domains) <= set(by_domain)
    }
    return {**{d: by_domain[d] for d in (*facts["domains"], facts["source"])}, **averages}


def _groups(measured: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in measured:
        groups.setdefault((run["method"], run["setting"]), []).append(run)
    return groups


def _summary(facts: Mapping[str, Any], measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for (method, setting), runs in _groups(measured).items():
        for selection in SELECTIONS:
            having = [run for run in runs if selection in run["figures"]]
            chosen = [run["figures"][selection] for run in having]
            for domain in [d for d in (chosen[0] if chosen else ()) if d != facts["source"]]:
                mean, std = mean_and_std([figures[domain] for figures in chosen])
                rows.append({
                    "task": facts["task"], "variant": facts["variant"], "method": method, "setting": setting, "domain": domain,
                    "metric": facts["metric"], "selection": selection, "mean": mean, "std": std,
                    "seeds": [run["seed"] for run in having],
                })  # fmt: skip
    return rows


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "seeds": " ".join(map(str, row["seeds"]))} for row in rows)
    return out.getvalue()


def _facts_of(run: Mapping[str, Any]) -> dict[str, Any]:
    config = run["config"]
    kept = {k: config[k] for k in ("run", "preset", "loop", "settings", "commit", "versions", "device", "threads") if k in config}
    same = {k: run[k] for k in ("method", "setting", "seed", "steps", "seconds", "chosen", "figures")}
    return {**same, **kept}


# ------------------------------------------------------------------------------------------------------ the page


def _page(facts: Mapping[str, Any], measured: Sequence[dict[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    groups = _groups(measured)
    seeds = sorted({run["seed"] for run in measured})
    commits = sorted({str(run["config"].get("commit")) for run in measured})
    head = [
        f"# {facts['task']}: {facts['metric']}, %",
        f"Made by `{facts['command']}` from the records of {len(measured)} runs; seeds {', '.join(map(str, seeds))}; "
        f"commit {', '.join(commits)}; last checkpoints unless a column says otherwise; mean ± std over seeds. "
        "Seconds are of training, one thread a run, on whatever else the machine was doing.",
    ]
    parts = [*head, _main_table(facts, groups)]
    if selections := _selection_table(groups):
        parts += ["## Which checkpoint", selections, "\n".join(f"- {name}: {what}" for name, what in SELECTIONS.items())]
    if (compared := _comparison(groups)) is not None:
        parts += compared
    return "\n\n".join(parts) + "\n"


def _main_table(facts: Mapping[str, Any], groups: Mapping[tuple[str, str], list[dict[str, Any]]]) -> str:
    domains = facts["domains"]
    averages = [name for name in next(iter(groups.values()))[0]["figures"]["last"] if name not in (*domains, facts["source"])]
    header = ["", f"{facts['source']} (source)", *domains, *averages, "paper", "updates", "seconds", "seeds"]
    body = []
    for runs in groups.values():
        cells = [_cell([run["figures"]["last"][d] for run in runs]) for d in (facts["source"], *domains, *averages)]
        paper = runs[0]["paper"]
        told = [paper[d] for d in domains if d in paper]
        reported = percent(math.fsum(told) / len(told)) if len(told) == len(domains) else its_own(paper.get("average"))
        seconds, _ = mean_and_std([run["seconds"] for run in runs])
        body.append([runs[0]["label"], *cells, reported, runs[0]["steps"], f"{seconds:.0f}", len(runs)])
    return markdown(header, body)


def its_own(average: float | None) -> str:
    """The paper's average over its own domains, which may be others than ours."""
    return "-" if average is None else f"{percent(average)} (its own domains)"


def _cell(values: Sequence[float]) -> str:
    mean, std = mean_and_std(values)
    return f"{percent(mean)} ± {percent(std)}" if len(values) > 1 else percent(mean)


def _selection_table(groups: Mapping[tuple[str, str], list[dict[str, Any]]]) -> str:
    rows = []
    for runs in groups.values():
        if all("oracle" in run["figures"] for run in runs):
            rows.append([runs[0]["label"], *(_cell([run["figures"][name]["average"] for run in runs]) for name in SELECTIONS)])
    return markdown(["average, unseen", *SELECTIONS], rows) if rows else ""


def _verdict(mean: float, half: float) -> str:
    return "cannot be told apart" if abs(mean) <= half else "above" if mean > 0 else "below"


def _comparison(groups: Mapping[tuple[str, str], list[dict[str, Any]]]) -> list[str] | None:
    """Every row against the first, seed by seed."""
    base, *others = groups.values()
    if not others:
        return None
    of_seed = {run["seed"]: run["figures"]["last"]["average"] for run in base}
    rows = []
    for runs in others:
        pairs = [run["figures"]["last"]["average"] - of_seed[run["seed"]] for run in runs if run["seed"] in of_seed]
        if not pairs:
            continue
        half = interval(pairs)
        verdict = "-" if half is None else _verdict(mean_and_std(pairs)[0], half)
        told = "one seed" if half is None else f"± {100 * half:.1f}"
        signed = ", ".join(f"{100 * d:+.1f}" for d in pairs)
        rows.append([runs[0]["label"], f"{100 * mean_and_std(pairs)[0]:+.1f}", told, verdict, signed])
    name = base[0]["label"]
    return [
        f"## Against {name}, seed by seed",
        markdown(["average, unseen, points", "mean", "95 % interval", "so it is", "by seed"], rows),
        "The interval is Student's t over paired seeds: it holds the mean difference between seeds, not between data sets. With "
        "three seeds it is 2.5 times the standard deviation of the differences, so only differences above that are told apart.",
    ]
