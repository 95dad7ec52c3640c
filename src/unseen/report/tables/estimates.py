"""Tables of label-free accuracy estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import json_bytes, replace_files
from unseen.report.statistics import mean_and_std
from unseen.report.tables.text import markdown, percent


def write_estimates(
    folder: Path, results: Sequence[Mapping[str, Any]], command: str
) -> list[dict[str, Any]]:
    """Write summary.json and table.md of runs that differ in their seed only.

    Return the rows of summary.json.
    """
    _check_comparable(results)
    rows = _summary_rows(results)
    page = _page(results, command).encode()
    replace_files(folder, {"summary.json": json_bytes(rows), "table.md": page}, [])
    return rows


def _check_comparable(results: Sequence[Mapping[str, Any]]) -> None:
    for name in ("task", "variant", "method"):
        if len(values := sorted({str(r[name]) for r in results})) > 1:
            raise UnseenError(
                f"runs of one table must differ in their seed only; their {name} is "
                f"{', '.join(values)}"
            )
    if len(seeds := [r["seed"] for r in results]) > len(set(seeds)):
        raise UnseenError(f"two runs have one seed: {', '.join(map(str, seeds))}")
    for result in results:
        if missing := [name for name, d in result["domains"].items() if "errors" not in d]:
            raise UnseenError(
                f"{result['run']}: no labels in {', '.join(missing)}, so there are no errors to "
                "tabulate"
            )


def _summary_rows(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    first, rows = results[0], []
    common = {k: first[k] for k in ("task", "variant")}
    seeds = [r["seed"] for r in results]

    def add(method: str, setting: str, domain: str, metric: str, values: Sequence[float]) -> None:
        mean, std = mean_and_std(values)
        rows.append(
            {
                **common,
                "method": method,
                "setting": setting,
                "domain": domain,
                "metric": metric,
                "selection": "last",
                "mean": mean,
                "std": std,
                "seeds": seeds,
            }
        )

    domains = [name for name in first["domains"] if name != first["source"]]
    for name in estimators(results):
        for domain in domains:
            errors = [abs(r["domains"][domain]["errors"][name]) for r in results]
            add(name, "default", domain, "accuracy_error", errors)
        for setting in _settings(first):
            errors = [r["protocols"][setting]["accuracy_error"][name] for r in results]
            add(name, setting, "average", "accuracy_error", errors)
    for setting in _settings(first):
        for metric in ("coverage", "width"):
            values = [r["protocols"][setting][metric] for r in results]
            add("combined", setting, "average", metric, values)
    return rows


def _settings(result: Mapping[str, Any]) -> list[str]:
    names = list(result["protocols"])
    return sorted(names, key=lambda name: (name != "default", name))


def estimators(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the estimators, the combined one first."""
    return list(next(iter(results[0]["domains"].values()))["estimates"])


def _page(results: Sequence[Mapping[str, Any]], command: str) -> str:
    first, names = results[0], estimators(results)
    level = percent(first["level"])
    body = []
    for domain in first["domains"]:
        by_run = [r["domains"][domain] for r in results]
        estimates = [show_spread([d["estimates"][name] for d in by_run]) for name in names]
        inside = sum(d["covered"] for d in by_run)
        width = math.fsum(d["interval"][1] - d["interval"][0] for d in by_run) / len(by_run)
        accuracy = show_spread([d["accuracy"] for d in by_run])
        covered = f"{inside} of {len(by_run)}, {percent(width)} wide"
        body.append([domain, accuracy, *estimates, covered])
    errors = [show_spread([r["mean_absolute_error"][name] for r in results]) for name in names]
    body.append(["**mean absolute error, unseen**", "", *errors, ""])
    protocols = []
    for setting in _settings(first):
        cells = [r["protocols"][setting] for r in results]
        protocols.append(
            [
                setting.replace("_", " "),
                *(show_spread([c["accuracy_error"][name] for c in cells]) for name in names),
                show_spread([c["coverage"] for c in cells]),
                show_spread([c["width"] for c in cells]),
            ]
        )
    seeds = ", ".join(str(r["seed"]) for r in results)
    blocks = [
        f"# {first['task']}: label-free accuracy estimates, %",
        f"Made by `{command}`; runs of {first['method']}, seeds {seeds}. The estimators are fitted "
        "with synthetic shifts of held-out source data; no target data is used.",
        markdown(["", "true accuracy", *names, f"in the {level} % interval of combined"], body),
        "Mean absolute error over unseen domains, coverage and width of the interval of combined. "
        "`blend 0.25` has 25 % of its samples from the target, the rest from the source; a sample "
        "of 100 is compared with the accuracy on the whole domain.",
        markdown(["", *names, "coverage", "width"], protocols),
    ]
    return "\n\n".join(blocks) + "\n"


def show_spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation in percent."""
    mean, std = mean_and_std(values)
    return f"{percent(mean)} ± {percent(std)}" if len(values) > 1 else percent(mean)
