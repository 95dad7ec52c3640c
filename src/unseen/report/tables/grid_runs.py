"""The figures of a grid's runs, from their records alone: which checkpoint, averages, means over seeds, intervals."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.report.statistics import mean_and_std

SELECTIONS = {
    "last": "the last checkpoint",
    "source-val": "the kept checkpoint that is best on held-out source data",
    "oracle": "the kept checkpoint that is best on the targets themselves: not a fair choice, an upper bound",
}


def parts_of(facts: Mapping[str, Any], measured: Sequence[dict[str, Any]]) -> list[Part]:
    """The runs by variant; last all variants together, where that means something."""
    parts = [Part.of(facts, variant, measured) for variant in facts["variants"]]
    parts = [part for part in parts if part.runs]
    together = _together(parts)
    return parts if together is None else [*parts, together]


@dataclass(frozen=True)
class Part:
    """The runs of one variant of the task, or of all variants together."""

    variant: str
    source: str | None
    domains: list[str]
    averages: dict[str, list[str]]
    runs: list[dict[str, Any]]

    @classmethod
    def of(cls, facts: Mapping[str, Any], variant: str, measured: Sequence[dict[str, Any]]) -> Part:
        told = facts["variants"][variant]
        runs = [run for run in measured if run["variant"] == variant]
        return cls(
            variant,
            told["source"],
            told["domains"],
            averages_over(told["domains"], facts["averages"]),
            runs,
        )

    def groups(self) -> list[list[dict[str, Any]]]:
        """The runs that differ by their seed alone, in the order of the grid."""
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for run in self.runs:
            groups.setdefault((run["method"], run["setting"]), []).append(run)
        return list(groups.values())


def averages_over(
    domains: Sequence[str], asked: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Which domains each average is over: all, and those that a grid names, by patterns such as fog/* if it likes."""
    found = {"average": list(domains)}
    for name, patterns in asked.items():
        matches = [[d for d in domains if fnmatch.fnmatchcase(d, pattern)] for pattern in patterns]
        if all(matches):
            found[name] = list(dict.fromkeys(d for match in matches for d in match))
    return found


def _together(parts: Sequence[Part]) -> Part | None:
    """All variants as one table, where their domains are different ones: a run is then one seed's of every variant."""
    domains = [d for part in parts for d in part.domains]
    if len(parts) < 2 or len(set(domains)) < len(domains):
        return None
    merged = []
    for key in dict.fromkeys((run["method"], run["setting"], run["seed"]) for run in parts[0].runs):
        same = [
            run
            for part in parts
            for run in part.runs
            if (run["method"], run["setting"], run["seed"]) == key
        ]
        if len(same) == len(parts):
            selections = [
                name for name in SELECTIONS if all(name in run["figures"] for run in same)
            ]
            figures = {}
            for name in selections:
                by_domain = {
                    d: run["figures"][name][d]
                    for run in same
                    for d in domains
                    if d in run["figures"][name]
                }
                figures[name] = {
                    **by_domain,
                    "average": math.fsum(by_domain.values()) / len(by_domain),
                }
            merged.append(
                {
                    **same[0],
                    "figures": figures,
                    "seconds": math.fsum(run["seconds"] for run in same),
                }
            )
    return Part("all", None, domains, {"average": domains}, merged) if merged else None


def select_checkpoints(
    values: Mapping[int, Mapping[str, float]], held_out: Mapping[int, float], domains: Sequence[str]
) -> dict[str, int]:
    """The step each selection chooses, from the figures of every kept step; of equals the later."""
    steps = sorted(values)
    chosen = {"last": steps[-1]}
    if len(steps) > 1:
        seen = [step for step in steps if step in held_out]
        chosen["source-val"] = max(seen, key=lambda step: (held_out[step], step))
        chosen["oracle"] = max(
            steps, key=lambda step: (math.fsum(values[step][d] for d in domains), step)
        )
    return chosen


def measured_run(facts: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """A run's figures by selection and domain, averages among them: from its records, or as published earlier."""
    told = facts["variants"][run["variant"]]
    wanted = [*told["domains"], told["source"]]
    found = dict(run) if "figures" in run else {**run, **_figures_of(facts, run, wanted)}
    averages = averages_over(told["domains"], facts["averages"])
    found["figures"] = {
        name: {
            **{d: by_domain[d] for d in wanted},
            **{
                label: math.fsum(by_domain[d] for d in domains) / len(domains)
                for label, domains in averages.items()
            },
        }
        for name, by_domain in found["figures"].items()
    }
    return found


def _figures_of(
    facts: Mapping[str, Any], run: Mapping[str, Any], wanted: Sequence[str]
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
    values = {
        step: figures for step, figures in values.items() if set(wanted) <= set(figures)
    }  # a domain may have come later
    chosen = select_checkpoints(values, held_out, facts["variants"][run["variant"]]["domains"])
    steps = run["config"]["loop"]["steps"]
    return {"figures": {name: values[step] for name, step in chosen.items()}, "chosen": chosen, "steps": steps,
            "seconds": pace[-1] * steps if pace else math.nan}  # fmt: skip


def summarize(facts: Mapping[str, Any], part: Part) -> list[dict[str, Any]]:
    rows = []
    for runs in part.groups():
        for selection in SELECTIONS:
            having = [run for run in runs if selection in run["figures"]]
            for domain in (*part.domains, *part.averages) if having else ():
                mean, std = mean_and_std([run["figures"][selection][domain] for run in having])
                rows.append({
                    "task": facts["task"], "variant": part.variant, "method": runs[0]["method"], "setting": runs[0]["setting"],
                    "domain": domain, "metric": facts["metric"], "selection": selection, "mean": mean, "std": std,
                    "seeds": [run["seed"] for run in having],
                })  # fmt: skip
    return rows
