"""The exam of a finished run: accuracy on domains it has never seen, and their score."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch

from unseen.api import Method, ScoreAt, Task
from unseen.checks import check_int
from unseen.detection.accuracy import FILE as ESTIMATOR
from unseen.detection.source_statistics import bootstrap_interval
from unseen.errors import UnseenError
from unseen.files import locked, write_atomically
from unseen.nn.tensor_files import read_tensors, write_tensors
from unseen.training.batches import evaluation_size, load_split, random_part, subsample, take
from unseen.training.checkpoint import load_weights, save_reference
from unseen.training.evaluation import Evaluation, evaluate_metric
from unseen.training.fit import REMEMBERED, calibrate
from unseen.training.identity import check_seed
from unseen.training.run import Run
from unseen.training.sample_images import examples_of

BOUND = "samples_at_most"  # a record of an exam that looked at so many of each domain rather than at all


def evaluate(
    run: Run, task: Task, device: str = "auto", kept: bool = False, samples: int | None = None
) -> dict[str, Any]:
    """The task's metric on the held-out source and on every unseen domain; also written to the run's records.

    With `kept`, the weights the run kept on the way are examined too, into its records, for choosing among them. The average of
    an adapted run is without the domain it has seen labels of. `samples` bounds how many of each domain are looked at.
    """
    if samples is not None:
        check_int("samples", samples, 1)
    net = run.load(task, device)
    config = run.config
    last = config["loop"]["steps"]
    nets = {
        step: _as_kept(net, run, step)
        for step in (run.kept_steps() if kept else [])
        if step != last
    }
    records: list[dict[str, Any]] = []
    domains: dict[str, dict[str, Any]] = {}
    shown: dict[str, torch.Tensor] = {}
    for domain in (
        task.source,
        *task.targets,
    ):  # one at a time: all of them may not fit into memory
        data = subsample(load_split(domain, "test"), samples)
        for step, examined in {**nets, last: net}.items():
            measured = evaluate_metric(task.metric, examined, data, net.ignore_label)
            records += _records(config["run"], task, step, domain.name, measured, samples)
        domains[domain.name] = {
            task.metric: measured.value,
            "n": measured.n,
            **_by_class(task, measured),
        }
        assert measured.confusion is not None
        shown[f"confusion/{domain.name}"] = measured.confusion
        shown |= {
            f"{name}/{domain.name}": tensor for name, tensor in examples_of(net, data).items()
        }
    run.replace(records)
    if samples is None and any(r["metric"] == BOUND for r in run.records()):  # of an earlier exam
        run.rewrite([r for r in run.records() if r["metric"] != BOUND])
    write_tensors(run.folder / "figures" / "exam.safetensors", shown)
    source = domains.pop(task.source.name)
    adapted = config.get("adapted", {}).get("domain")
    unseen = [d[task.metric] for name, d in domains.items() if name != adapted]
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


def _as_kept(net: Method, run: Run, step: int) -> Method:
    """The method with the weights it had at that step."""
    earlier = copy.deepcopy(net)
    load_weights(earlier, read_tensors(run.kept_path(step)), run.kept_path(step))
    return earlier


def _records(
    run: str, task: Task, step: int, domain: str, measured: Evaluation, bound: int | None
) -> list[dict[str, Any]]:
    at = {"run": run, "step": step, "domain": domain, "split": "test"}
    of_classes = {
        f"iou/{name}": value for name, value in _by_class(task, measured).get("classes", {}).items()
    }
    figures = {task.metric: measured.value, **of_classes, BOUND: bound}
    return [
        {**at, "metric": name, "value": value}
        for name, value in figures.items()
        if value is not None
    ]


def _by_class(task: Task, measured: Evaluation) -> dict[str, dict[str, float | None]]:
    """The figures of each class under its name; None for a class that is neither there nor guessed."""
    if not measured.per_class:
        return {}
    names = task.class_names or tuple(map(str, range(task.classes)))
    return {
        "classes": {
            n: None if math.isnan(v) else v for n, v in zip(names, measured.per_class, strict=True)
        }
    }


def score(
    run: Run,
    task: Task,
    domain: str,
    *,
    batch: int | None = None,
    false_alarm_rate: float = 0.01,
    seed: int = 0,
    per_sample: Path | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """How far a domain is from the source, and whether that is more than chance at that many samples.

    The score of every single sample goes to the CSV file `per_sample`, if one is named.
    """
    net = run.load(task, device)
    check_seed(seed)
    data = load_split(task.domain(domain), "test")
    index = torch.arange(len(data))  # type: ignore[arg-type]
    if batch is not None:
        if not 1 <= batch <= len(index):
            raise UnseenError(
                f"--batch must lie between 1 and the {len(index)} samples of {domain}, not {batch}"
            )
        index = torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))[:batch]
    features = torch.cat(
        [
            net.score_features(take(data, part).x).cpu()
            for part in index.split(evaluation_size(data))
        ]
    )
    if net.reference is None:
        raise UnseenError(f"{run.folder} holds no source statistics: train it again")
    value = float(net.score(features.mean(0)))
    threshold = net.threshold(len(index), false_alarm_rate)
    if not math.isfinite(value):
        raise UnseenError(
            f"the score of {domain} is {value}: look for NaN in its data or in the run's weights"
        )
    written = {}
    if per_sample is not None:
        lines = [
            f"{i},{s:.6g}"
            for i, s in zip(
                index.tolist(), net.score(features.to(net.device)).tolist(), strict=True
            )
        ]
        write_atomically(per_sample, ("\n".join(["sample,score", *lines]) + "\n").encode())
        written = {"per_sample": str(per_sample)}
    return {
        "domain": domain,
        "score": value,
        "interval": list(bootstrap_interval(features, net.score)),
        "threshold": threshold,
        "alarm": value > threshold,
        "n": len(index),
        "score_name": net.score_name,
        "fallback": net.score_name != "sigma",
        "false_alarm_rate": false_alarm_rate,
        "calibrated_on": len(net.reference.held_out),
        **written,
    }


def recalibrate(run: Run, task: Task, score_at: ScoreAt, device: str = "auto") -> dict[str, Any]:
    """Read a finished run's score elsewhere; its source statistics are taken anew, its weights stay as they are."""
    net = run.load(task, device)
    source, held_out = (
        random_part(load_split(task.source, split), REMEMBERED) for split in ("train", "val")
    )
    calibrate(net, source, held_out, score_at)
    with locked(run.folder):
        save_reference(net, run.folder)
        (run.folder / ESTIMATOR).unlink(missing_ok=True)  # it was of the other score
    assert net.reference is not None
    return {
        "run": str(run.folder),
        "score_at": score_at,
        "features": len(net.reference.mean),
        "threshold": net.threshold(64),
    }
