"""Tables of how often verdicts are right, and of error detection by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.files import json_bytes, replace_files
from unseen.report.statistics import mean_and_std
from unseen.report.tables.text import markdown, percent

GROUPS = {
    "source": "fresh source",
    "harmless": "shifts within 1 point",
    "between": "shifts that cost 1 to 10 points",
    "costly": "shifts that cost 10 points or more",
}
PER_SAMPLE = ("auroc", "aurc", "ece")


def write_verdicts(
    folder: Path, results: Sequence[Mapping[str, Any]], command: str
) -> list[dict[str, Any]]:
    """Write summary.json, sets.json and table.md of one or several tasks; return the summary."""
    tasks: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        tasks.setdefault((result["task"], result["variant"]), []).append(result)
    rows = [row for runs in tasks.values() for row in _summary(runs)]
    files = {
        "summary.json": json_bytes(rows),
        "sets.json": json_bytes({"runs": list(results)}),
        "table.md": _page(tasks, command).encode(),
    }
    replace_files(folder, files, [])
    return rows


def _summary(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    first, rows = runs[0], []
    for group in GROUPS:
        having = [r for r in runs if group in r["groups"]]
        if not having:
            continue
        for size, detectors in having[0]["groups"][group]["rates"].items():
            for detector in detectors:
                values = [r["groups"][group]["rates"][size][detector] for r in having]
                mean, std = mean_and_std(values)
                rows.append(
                    {
                        "task": first["task"],
                        "variant": first["variant"],
                        "method": detector,
                        "setting": f"batch_{size}",
                        "domain": group,
                        "metric": "fired",
                        "selection": "last",
                        "mean": mean,
                        "std": std,
                        "seeds": [r["seed"] for r in having],
                    }
                )
    return rows


def _page(tasks: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], command: str) -> str:
    first = next(iter(tasks.values()))[0]
    blocks = [
        "# Verdicts",
        f"Made by `{command}`. Part of random batches, in %, on which each test fires at a stated "
        f"rate of {percent(first['rate'])} %. `failing`: the verdict is failing or unknown, at a "
        f"tolerance of {percent(first['tolerance'])} points. `alarm`: the domain score exceeds its "
        "threshold. `max_softmax`: the same test on maximum softmax probability. `ks_embedding`: "
        "Kolmogorov-Smirnov tests on 32 principal components of the embedding, with Bonferroni's "
        "correction. Sets: the unseen domains, blends with 25 and 50 % of them, and weak shifts of "
        "the source. An empty group has no set.",
    ]
    for (task, variant), runs in tasks.items():
        name = task if variant == "default" else f"{task}/{variant}"
        seeds = ", ".join(str(r["seed"]) for r in runs)
        blocks += [f"## {name}, seeds {seeds}", _rates(runs), _per_sample(runs)]
    return "\n\n".join(blocks) + "\n"


def _rates(runs: Sequence[Mapping[str, Any]]) -> str:
    body, names = [], []
    for group, label in GROUPS.items():
        having = [r["groups"][group] for r in runs if group in r["groups"]]
        if not having:
            continue
        for size, detectors in having[0]["rates"].items():
            names = list(detectors)
            sets = sum(cells["sets"] for cells in having)
            means = [np.mean([c["rates"][size][name] for c in having]) for name in names]
            body.append([label, str(sets), size, *(percent(float(m)) for m in means)])
    return markdown(["", "sets", "batch", *names], body)


def _per_sample(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return error detection on the source and the mean over the other sets."""
    body = []
    for label, chosen in (("source", True), ("other sets", False)):
        for metric in PER_SAMPLE:
            cells = []
            for name in ("correctness", "max_softmax"):
                values = [
                    found[f"{name}/{metric}"]
                    for r in runs
                    for s, found in r["per_sample"].items()
                    if (s == "source") == chosen and f"{name}/{metric}" in found
                ]
                cells.append(percent(float(np.mean(values))) if values else "")
            body.append([f"{metric.upper()} of errors, {label}", *cells])
    return markdown(["by sample", "correctness", "max_softmax"], body)
