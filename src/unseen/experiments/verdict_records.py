"""Verdicts and reliability bins in the folder of a run, for the report."""

from __future__ import annotations

import logging
import math
from typing import Any

from torch import Tensor

from unseen.detection.one_pass import Observation
from unseen.detection.verdict import Verdict
from unseen.errors import UnseenError
from unseen.experiments.evaluate import LOCK_WAIT, RELIABILITY, VERDICT_SPLIT
from unseen.files import locked, replace_files
from unseen.functional.reliability import reliability_bins
from unseen.nn.inputs import check_labels
from unseen.nn.tensor_files import read_tensors, tensor_bytes
from unseen.training.run import RECORDS, Run, record_lines

log = logging.getLogger("unseen")


def save_verdict(run: Run, domain: str, verdict: Verdict, bins: dict[str, Tensor]) -> None:
    """Replace what the run holds of the domain; warn if the folder cannot be written."""
    try:
        with locked(run.folder, wait=LOCK_WAIT, nested=True):
            kept = [
                r
                for r in run.records()
                if (r["split"], r["domain"]) != (VERDICT_SPLIT, domain)  # the verdict may differ
            ]
            records = [*kept, *verdict_records(run.config, domain, verdict)]
            tensors = {f"{kind}/{domain}": values for kind, values in bins.items()}
            tensors = _bins_of_others(run, domain) | tensors
            files = {RECORDS: record_lines(records)}
            if tensors:
                files[RELIABILITY] = tensor_bytes(tensors)
            replace_files(run.folder, files, [] if tensors else [RELIABILITY])
    except (UnseenError, OSError) as error:
        log.warning("the verdict is not saved: %s", error)


def verdict_records(config: dict[str, Any], domain: str, verdict: Verdict) -> list[dict[str, Any]]:
    """Return the records of a verdict; its outcome is the name of a metric of value 1."""
    low, high = (None, None) if verdict.interval is None else verdict.interval
    values: dict[str, float | None] = {
        "predicted_accuracy": verdict.predicted_accuracy,
        "predicted_low": low,
        "predicted_high": high,
        "source_accuracy": verdict.source_accuracy,
        "p_value": verdict.p_value,
        "score": verdict.score,
        "threshold": verdict.threshold,
        f"verdict_{verdict.verdict}": 1.0,
    }
    at = {"run": config["run"], "step": config["loop"]["steps"], "domain": domain}
    return [
        {**at, "split": VERDICT_SPLIT, "metric": name, "value": float(value)}
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]


def reliability(
    seen: Observation, correctness: Tensor, labels: Tensor, ignore: int
) -> dict[str, Tensor]:
    """Return bins of maximum softmax probability (before) and of correctness (after).

    Both are means over the pixels of a sample. Empty if the labels are no class indices, or if
    all of them are ignored.
    """
    try:
        check_labels(seen.logits.transpose(1, 2), labels, ignore)
    except UnseenError:
        return {}
    counted = labels != ignore
    right = (counted & (seen.logits.argmax(2) == labels)).sum(1)
    some = counted.any(1)
    if not some.any():
        return {}
    accuracy = right[some].double() / counted.sum(1)[some]
    confidence = {
        "before": seen.logits.double().softmax(2).amax(2).mean(1),
        "after": correctness.double(),
    }
    return {kind: reliability_bins(values[some], accuracy) for kind, values in confidence.items()}


def _bins_of_others(run: Run, domain: str) -> dict[str, Tensor]:
    """Return the saved bins of other domains; none if the file is damaged."""
    path = run.folder / RELIABILITY
    if not path.exists():
        return {}
    try:
        saved = read_tensors(path)
    except UnseenError as error:
        log.warning("older reliability bins are left out: %s", error)
        return {}
    return {name: t for name, t in saved.items() if name.partition("/")[2] != domain}
