"""Values reported in the paper, for comparison with those of the runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CITATION = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"


class PaperValue(NamedTuple):
    """A value of the paper in percent, its standard deviation (nan if none) and a remark."""

    value: float
    remark: str = ""
    std: float = math.nan


@cache
def read_paper() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("paper.json").read_text())


def paper_value(
    task: str, variant: str, method: str, domains: Sequence[str], every: bool = False
) -> PaperValue | None:
    """Return the paper's value for a domain or for an average over domains.

    If the paper lacks some of the domains and `every` says that these are all domains of the task,
    return the paper's own average, with a remark on its domains.
    """
    paper = read_paper()
    results = paper["results"]
    if f"{task}/{variant}" in paper["of_other_data"]:
        return None
    by_method = results.get(f"{task}/{variant}", results.get(f"{task}/*", {}))
    values = by_method.get(method, {})
    if domains and all(d in values for d in domains):
        mean = math.fsum(values[d] for d in domains) / len(domains)
        return PaperValue(mean, paper["remarks"].get(task, ""))
    if every and "average" in values:
        own = [d for d in values if d != "average"]
        remark = f"over {', '.join(own)}" if own else "over 15 corruptions at 5 severities"
        return PaperValue(values["average"], remark)
    return None


def ablation_name(changes: dict[str, Any]) -> str | None:
    """Return the paper's name of an ablation; None if the paper does not have it."""
    ablations = read_paper()["ablations"]
    return next((row["name"] for row in ablations if row["set"] == changes), None)


def ablation_value(task: str, name: str) -> PaperValue | None:
    """Return the paper's value for an ablation."""
    row: dict[str, Any] = next((r for r in read_paper()["ablations"] if r["name"] == name), {})
    if task not in row:
        return None
    remarks = {"digits": "over svhn, mnist_m, syn, usps", "cifar10_c": "over severity 5"}
    return PaperValue(row[task][0], remarks[task], row[task][1])
