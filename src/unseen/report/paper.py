"""What the paper reports, for putting beside what the runs gave."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CITATION = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"


class Reported(NamedTuple):
    """A figure of the paper, in percent, and what one must know of it; std is nan where it reports none."""

    value: float
    remark: str = ""
    std: float = math.nan


@cache
def reported() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("paper.json").read_text())


def paper_figure(
    task: str, variant: str, method: str, domains: Sequence[str], every: bool = False
) -> Reported | None:
    """The paper's figure for one domain or for an average: of the same, or if these are all, its own."""
    results = reported()["results"]
    if f"{task}/{variant}" in reported()["of_other_data"]:
        return None
    by_method = results.get(f"{task}/{variant}", results.get(f"{task}/*", {}))
    told = by_method.get(method, {})
    remark = reported()["remarks"].get(task, "")
    if domains and all(d in told for d in domains):
        return Reported(math.fsum(told[d] for d in domains) / len(domains), remark)
    if every and "average" in told:
        own = [d for d in told if d != "average"]
        return Reported(
            told["average"],
            f"over {', '.join(own)}" if own else "over 15 corruptions at 5 severities",
        )
    return None


def ablation(differs: dict[str, Any]) -> str | None:
    """The paper's name of what was changed; None if it did not try that."""
    return next((row["name"] for row in reported()["ablations"] if row["set"] == differs), None)


def ablation_figure(task: str, name: str) -> Reported | None:
    row: dict[str, Any] = next((row for row in reported()["ablations"] if row["name"] == name), {})
    if task not in row:
        return None
    remarks = {"digits": "over svhn, mnist_m, syn, usps", "cifar10_c": "over severity 5"}
    return Reported(row[task][0], remarks[task], row[task][1])
