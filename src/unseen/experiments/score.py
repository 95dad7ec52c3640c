"""The verdict on a domain by a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from unseen.api import Method, Task
from unseen.checks import check_fraction
from unseen.detection.one_pass import Observation
from unseen.detection.verdict import RATE, TOLERANCE, judge, judge_score
from unseen.errors import UnseenError
from unseen.experiments.run_estimator import estimator_of
from unseen.experiments.verdict_records import reliability, save_verdict
from unseen.files import write_csv
from unseen.functional.bootstrap import bootstrap_interval
from unseen.functional.pixels import sampled_labels
from unseen.training.batches import evaluation_size, load_split, sample_names, stream
from unseen.training.identity import check_seed
from unseen.training.run import Run


def score(
    run: Run,
    task: Task,
    domain: str,
    *,
    batch: int | None = None,
    false_alarm_rate: float = RATE,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    per_sample: Path | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Judge a domain: its score against the threshold, its estimated accuracy, and a verdict.

    The verdict on a whole domain is added to the records of the run, with reliability bins if the
    domain has labels, for the report.

    Args:
        batch: score only this many random samples.
        tolerance: loss of accuracy against the source that is still fine.
        per_sample: CSV file for the score of every sample.
    """
    check_fraction("the false-alarm rate", false_alarm_rate)
    check_fraction("tolerance", tolerance, zero=True)
    net = run.load(task, device)
    detector = net.detector
    check_seed(seed)
    data = load_split(task.domain(domain), "test")
    index = torch.arange(len(data))  # type: ignore[arg-type]
    if batch is not None:
        if not 1 <= batch <= len(index):
            raise UnseenError(
                f"--batch must lie between 1 and the {len(index)} samples of {domain}, not {batch}"
            )
        index = torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))[:batch]
    if detector.statistics is None:
        raise UnseenError(f"{run.folder} holds no source statistics: train it again")
    seen: Observation | None = None
    bins: dict[str, Tensor] = {}
    if net.objective.classifies:
        seen, labels = _observe(run, task, net, data, index)
        assert seen.own is not None
        features = seen.own
        verdict = judge(detector, net.accuracy_estimator, seen, tolerance, false_alarm_rate)
        correctness = net.accuracy_estimator.correctness_from(seen)
        bins = reliability(seen, correctness, labels, net.ignore_label)
    else:
        samples = stream(data, index.split(evaluation_size(data)), len(index))
        features = torch.cat([detector.look(part.x).features.cpu() for part in samples])
        verdict = judge_score(detector, features, false_alarm_rate)
    if batch is None:
        save_verdict(run, task.domain(domain).name, verdict, bins)
    low, high = bootstrap_interval(features, detector.reduce)
    result = {
        "domain": domain,
        "verdict": verdict.verdict,
        "sentence": verdict.sentence,
        "score": verdict.score,
        "score_interval": [low, high],
        "threshold": verdict.threshold,
        "times_threshold": verdict.times_threshold,
        "p_value": verdict.p_value,
        "alarm": verdict.alarm,
        "predicted_accuracy": verdict.predicted_accuracy,
        "interval": None if verdict.interval is None else list(verdict.interval),
        "source_accuracy": verdict.source_accuracy,
        "failing_p_value": verdict.failing_p_value,
        "tolerance": verdict.tolerance,
        "n": len(index),
        "score_name": detector.name,
        "fallback": not detector.reads_learned_noise,
        "false_alarm_rate": false_alarm_rate,
        "calibrated_on": len(detector.statistics.held_out),
    }
    if per_sample is not None:
        scores = detector.reduce(features.to(net.device)).tolist()
        columns: dict[str, list[float]] = {"score": scores}
        if seen is not None:
            columns["correctness"] = correctness.tolist()
        rows = zip(sample_names(data, index), *columns.values(), strict=True)
        table = ((name, *(f"{value:.6g}" for value in values)) for name, *values in rows)
        write_csv(per_sample, ("sample", *columns), table)
        result["per_sample"] = str(per_sample)
    return result


def _observe(
    run: Run, task: Task, net: Method, data: Dataset, index: Tensor
) -> tuple[Observation, Tensor]:
    """Return an observation of the samples, and their labels."""
    estimator = estimator_of(run, task, net)
    parts, labels = list[Observation](), list[Tensor]()
    for samples in stream(data, index.split(evaluation_size(data)), len(index)):
        parts.append(estimator.one_pass.observe(samples.x, own=net.detector))
        labels.append(sampled_labels(samples.y.cpu()))
    return estimator.one_pass.join(parts), torch.cat(labels)
