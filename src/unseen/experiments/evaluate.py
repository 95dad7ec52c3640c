"""Evaluation of finished runs: metrics on unseen domains, and domain scores."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch.utils.data import Dataset

from unseen.api import Method, Task
from unseen.checks import check_int
from unseen.detection.accuracy import FILE as ESTIMATOR_FILE
from unseen.detection.sampling import MAX_SAMPLES
from unseen.detection.scoring import ScoreAt
from unseen.files import locked, replace_files
from unseen.nn.tensor_files import read_tensors, tensor_bytes
from unseen.training.batches import load_split, random_part, subsample
from unseen.training.checkpoint import SOURCE, detector_bytes, load_weights
from unseen.training.evaluation import Evaluation, NoLabels, evaluate_metric
from unseen.training.fit import calibrate
from unseen.training.run import RECORDS, Run, record_lines
from unseen.training.sample_images import examples_of

# Marks records of an evaluation on a random part of each domain.
SUBSAMPLE_METRIC = "samples_at_most"
SCORE_SPLIT = "score"  # of records of domain scores, computed on the test split
VERDICT_SPLIT = "verdict"  # of records of `unseen score`, computed on the test split
EXAM = "figures/exam.safetensors"
RELIABILITY = "figures/reliability.safetensors"
LOCK_WAIT = 60.0  # seconds; another evaluation holds the lock only while it writes
SCORED_SAMPLES = 500  # of each domain; scores of sampled passes are slow


def evaluate(
    run: Run, task: Task, device: str = "auto", kept: bool = False, samples: int | None = None
) -> dict[str, Any]:
    """Compute the task's metric on the source test split and every target; add it to the records.

    The average of an adapted run excludes the domain whose labels it was adapted with.

    Args:
        kept: evaluate the checkpoints of the run too, for model selection.
        samples: evaluate on at most this many random samples of each domain.
    """
    if samples is not None:
        check_int("samples", samples, 1)
    net = run.load(task, device)
    config = run.config
    last = config["loop"]["steps"]
    steps = [step for step in (run.kept_steps() if kept else []) if step != last]
    nets = {**{step: _load_checkpoint(net, run, step) for step in steps}, last: net}
    records: list[dict[str, Any]] = []
    domains: dict[str, dict[str, Any]] = {}
    figures: dict[str, torch.Tensor] = {}
    for domain in (task.source, *task.targets):  # one at a time: memory
        data = subsample(load_split(domain, "test"), samples)
        try:
            for step, candidate in nets.items():
                result = evaluate_metric(task.metric, candidate, data, net.ignore_label)
                records += _records(config["run"], task, step, domain.name, result, samples)
            values = {task.metric: result.value, "n": result.n}
            domains[domain.name] = {**values, **_class_values(task, result)}
            if result.confusion is not None:
                figures[f"confusion/{domain.name}"] = result.confusion
        except NoLabels:  # only scored
            if domain is task.source or not task.record:
                raise
            domains[domain.name] = {task.metric: None, "n": len(data)}  # type: ignore[arg-type]
        records += _score_records(net, data, run.config, domain.name)
        examples = examples_of(net, data)
        figures |= {f"{name}/{domain.name}": tensor for name, tensor in examples.items()}
    with locked(run.folder, wait=LOCK_WAIT, nested=True):
        records = run.updated(records)
        if samples is None:  # the marks of an earlier evaluation on fewer samples no longer hold
            records = [r for r in records if r["metric"] != SUBSAMPLE_METRIC]
        files = {RECORDS: record_lines(records), EXAM: tensor_bytes(figures)}
        replace_files(run.folder, files)
    source = domains.pop(task.source.name)
    adapted = config.get("adapted", {}).get("domain")
    labelled = [name for name, d in domains.items() if d[task.metric] is not None]
    unseen = [domains[name][task.metric] for name in labelled if name != adapted]
    return {
        "run": config["run"],
        "task": task.name,
        "variant": task.variant,
        "method": config["method"],
        "seed": config["seed"],
        "source": {"name": task.source.name, **source},
        "domains": domains,
        "average": math.fsum(unseen) / len(unseen) if unseen else None,
        **({} if adapted is None else {"adapted_to": adapted}),
    }


def _load_checkpoint(net: Method, run: Run, step: int) -> Method:
    """Return a copy of the method with the weights of a checkpoint."""
    earlier = copy.deepcopy(net)
    load_weights(earlier, read_tensors(run.kept_path(step)), run.kept_path(step))
    return earlier


def _records(
    run: str, task: Task, step: int, domain: str, result: Evaluation, samples: int | None
) -> list[dict[str, Any]]:
    at = {"run": run, "step": step, "domain": domain, "split": "test"}
    by_class = _class_values(task, result).get("classes", {})
    values: dict[str, float | None] = {task.metric: result.value}
    kind = "iou" if task.metric == "miou" else "ap"
    values |= {f"{kind}/{name}": value for name, value in by_class.items()}
    values[SUBSAMPLE_METRIC] = samples
    return [
        {**at, "metric": name, "value": value}
        for name, value in values.items()
        if value is not None
    ]


def _score_records(
    net: Method, data: Dataset, config: dict[str, Any], domain: str
) -> list[dict[str, Any]]:
    """Return the domain score and its threshold as records, for the report."""
    detector = net.detector
    if detector.statistics is None:
        return []
    # Scores of sampled passes draw random numbers; the evaluation after them must not change.
    with torch.random.fork_rng():
        parts = random_part(data, SCORED_SAMPLES)
        features = torch.cat([detector.look(part.x).features.cpu() for part in parts])
        score = float(detector.reduce(features.mean(0)))
        threshold = detector.threshold(len(features))
    values = {"domain_score": score, "score_threshold": threshold}
    at = {"run": config["run"], "step": config["loop"]["steps"], "domain": domain}
    return [
        {**at, "split": SCORE_SPLIT, "metric": name, "value": value}
        for name, value in values.items()
        if math.isfinite(value)
    ]


def _class_values(task: Task, result: Evaluation) -> dict[str, dict[str, float | None]]:
    """Return the values of each class by its name; None for a class that never occurs."""
    if not result.per_class:
        return {}
    names = task.class_names or tuple(map(str, range(task.classes)))
    pairs = zip(names, result.per_class, strict=True)
    return {"classes": {name: None if math.isnan(v) else v for name, v in pairs}}


def recalibrate(run: Run, task: Task, score_at: ScoreAt, device: str = "auto") -> dict[str, Any]:
    """Compute a finished run's score at another layer; its weights stay as they are."""
    net = run.load(task, device)
    source, held_out = (
        random_part(load_split(task.source, split), MAX_SAMPLES) for split in ("train", "val")
    )
    calibrate(net, source, held_out, score_at)
    with locked(run.folder, wait=LOCK_WAIT):
        outdated = (SCORE_SPLIT, VERDICT_SPLIT)
        records = [r for r in run.records() if r["split"] not in outdated]
        files = {SOURCE: detector_bytes(net), RECORDS: record_lines(records)}
        # The estimator and the verdicts belong to the other score.
        replace_files(run.folder, files, [ESTIMATOR_FILE, RELIABILITY])
    return {
        "run": str(run.folder),
        "score_at": score_at,
        "features": len(net.detector.calibrated().mean),
        "threshold": net.threshold(64),
    }
