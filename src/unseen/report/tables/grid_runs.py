"""Metrics of a grid's runs from their records: checkpoint selection and averages."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.report.statistics import mean_and_std
from unseen.report.units import is_error

Run = dict[str, Any]
SELECTIONS = {
    "last": "the last checkpoint",
    "source-val": "the checkpoint that is best on held-out source data",
    "oracle": "the checkpoint that is best on the targets: not a fair choice, an upper bound",
}


@dataclass(frozen=True)
class VariantRuns:
    """The runs of one variant of the task, or of all variants together (no source)."""

    variant: str
    source: str | None
    domains: list[str]
    averages: dict[str, list[str]]
    runs: list[Run]

    def groups(self) -> list[list[Run]]:
        """Return the runs that differ only in their seed, in the order of the grid."""
        groups: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run["method"], run["setting"]), []).append(run)
        return list(groups.values())


def split_by_variant(facts: Mapping[str, Any], runs: Sequence[Run]) -> list[VariantRuns]:
    """Return the runs by variant, then all variants together if their domains are distinct."""
    parts = []
    for variant, about in facts["variants"].items():
        own = [run for run in runs if run["variant"] == variant]
        averages = averages_over(about["domains"], facts["averages"])
        if own:
            parts.append(VariantRuns(variant, about["source"], about["domains"], averages, own))
    merged = _merge_variants(parts)
    return parts if merged is None else [*parts, merged]


def averages_over(
    domains: Sequence[str], patterns: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the domains of each average: of all domains, and of each pattern such as fog/*."""
    averages = {"average": list(domains)}
    for name, globs in patterns.items():
        matches = [[d for d in domains if fnmatch.fnmatchcase(d, pattern)] for pattern in globs]
        if all(matches):
            averages[name] = list(dict.fromkeys(d for match in matches for d in match))
    return averages


def _merge_variants(parts: Sequence[VariantRuns]) -> VariantRuns | None:
    """Merge the runs of all variants that share method, setting and seed.

    None for a single variant, and if variants share domains.
    """
    domains = [d for part in parts for d in part.domains]
    if len(parts) < 2 or len(set(domains)) < len(domains):
        return None
    merged = []
    for key in dict.fromkeys(map(_key, parts[0].runs)):
        same = [run for part in parts for run in part.runs if _key(run) == key]
        if len(same) == len(parts):
            merged.append(_merge_runs(same, domains))
    return VariantRuns("all", None, domains, {"average": domains}, merged) if merged else None


def _key(run: Run) -> tuple[str, str, int]:
    return run["method"], run["setting"], run["seed"]


def _merge_runs(runs: Sequence[Run], domains: Sequence[str]) -> Run:
    figures = {}
    for name in SELECTIONS:
        if all(name in run["figures"] for run in runs):
            values = {
                d: run["figures"][name][d]
                for run in runs
                for d in domains
                if d in run["figures"][name]
            }
            figures[name] = {**values, "average": math.fsum(values.values()) / len(values)}
    seconds = math.fsum(run["seconds"] for run in runs)
    return {**runs[0], "figures": figures, "seconds": seconds}


def select_checkpoints(
    values: Mapping[int, Mapping[str, float]],
    held_out: Mapping[int, float],
    domains: Sequence[str],
    less_is_better: bool = False,
) -> dict[str, int]:
    """Return the step of each selection, given the metrics of every checkpoint.

    The later of two equal checkpoints wins.
    """
    steps, sign = sorted(values), -1 if less_is_better else 1
    selected = {"last": steps[-1]}
    if len(steps) > 1:
        evaluated = [step for step in steps if step in held_out]
        selected["source-val"] = max(evaluated, key=lambda step: (sign * held_out[step], step))
        selected["oracle"] = max(
            steps, key=lambda step: (sign * math.fsum(values[step][d] for d in domains), step)
        )
    return selected


def add_metrics(facts: Mapping[str, Any], run: Mapping[str, Any]) -> Run:
    """Return the run with its metrics by selection and domain, averages included.

    They come from its records, or are those of an earlier publication.
    """
    about = facts["variants"][run["variant"]]
    domains = [*about["domains"], about["source"]]
    result = dict(run) if "figures" in run else {**run, **_read_metrics(facts, run, domains)}
    averages = averages_over(about["domains"], facts["averages"])
    figures = {}
    for name, values in result["figures"].items():
        means = {k: math.fsum(values[d] for d in ds) / len(ds) for k, ds in averages.items()}
        figures[name] = {**{d: values[d] for d in domains}, **means}
    return {**result, "figures": figures, "metric": facts["metric"]}


def _read_metrics(
    facts: Mapping[str, Any], run: Mapping[str, Any], domains: Sequence[str]
) -> dict[str, Any]:
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
    # A domain may have been added to the task after some checkpoints were evaluated.
    values = {step: v for step, v in values.items() if set(domains) <= set(v)}
    targets = facts["variants"][run["variant"]]["domains"]
    selected = select_checkpoints(values, held_out, targets, is_error(facts["metric"]))
    steps = run["config"]["loop"]["steps"]
    return {
        "figures": {name: values[step] for name, step in selected.items()},
        "chosen": selected,
        "steps": steps,
        "seconds": pace[-1] * steps if pace else math.nan,
    }


def summarize(facts: Mapping[str, Any], part: VariantRuns) -> list[dict[str, Any]]:
    """Return a row for each group, selection and domain: mean and standard deviation over seeds."""
    rows = []
    for group in part.groups():
        for selection in SELECTIONS:
            runs = [run for run in group if selection in run["figures"]]
            for domain in (*part.domains, *part.averages) if runs else ():
                mean, std = mean_and_std([run["figures"][selection][domain] for run in runs])
                rows.append({
                    "task": facts["task"], "variant": part.variant, "method": group[0]["method"],
                    "setting": group[0]["setting"], "domain": domain, "metric": facts["metric"],
                    "selection": selection, "mean": mean, "std": std,
                    "seeds": [run["seed"] for run in runs],
                })  # fmt: skip
    return rows
