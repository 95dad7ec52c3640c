"""Predictions of a finished run, with those to hand to a person."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from unseen.api import Method, Task
from unseen.checks import check_number
from unseen.errors import UnseenError
from unseen.experiments.run_estimator import estimator_of
from unseen.files import write_csv
from unseen.training.batches import batches_of, load_split, sample_names
from unseen.training.run import Run


def predict_domain(
    run: Run,
    task: Task,
    domain: str,
    out: Path,
    *,
    reject_rate: float = 0.0,
    device: str = "auto",
) -> dict[str, Any]:
    """Write a CSV row for each sample: class, its probability, and that of being correct.

    Args:
        reject_rate: part of the samples, those least likely to be correct, to hand to a person.
    """
    if check_number("reject_rate", reject_rate, 0) >= 1:
        raise UnseenError(f"reject_rate must lie in [0, 1), not {reject_rate}")
    if task.metric == "miou":
        raise UnseenError(f"predict writes classes of samples; {task.name} predicts maps")
    net = run.load(task, device)
    if task.metric != "accuracy":
        return _predict_values(net, task, domain, out, reject_rate)
    estimator = estimator_of(run, task, net)
    data = load_split(task.domain(domain), "test")
    ignore = net.ignore_label
    parts = [estimator.one_pass.observe(b.x, b.y, ignore) for b in batches_of(data)]
    seen = estimator.one_pass.join(parts)
    probability, predicted = seen.logits[:, 0].softmax(1).max(1)
    correctness = estimator.correctness_from(seen)
    rejected = torch.zeros(seen.n, dtype=torch.bool)
    rejected[correctness.argsort(stable=True)[: math.floor(reject_rate * seen.n)]] = True
    names = task.class_names or tuple(map(str, range(task.classes)))
    rows = zip(predicted.tolist(), probability.tolist(), correctness.tolist(), rejected.tolist(),
               strict=True)  # fmt: skip
    samples = sample_names(data, torch.arange(seen.n))
    write_csv(
        out,
        ("sample", "prediction", "probability", "correctness", "rejected"),
        (
            (name, names[p], f"{q:.6g}", f"{c:.6g}", int(r))
            for name, (p, q, c, r) in zip(samples, rows, strict=True)
        ),
    )
    result: dict[str, Any] = {
        "domain": domain,
        "out": str(out),
        "n": seen.n,
        "rejected": int(rejected.sum()),
        "reject_rate": reject_rate,
        "expected_accuracy_of_kept": float(correctness[~rejected].mean()),
        "expected_accuracy_of_rejected": float(correctness[rejected].mean())
        if rejected.any()
        else None,
    }
    assert seen.correct is not None and seen.counted is not None
    if seen.counted.all():
        correct = seen.correct[:, 0].double()
        result["accuracy"] = float(correct.mean())
        result["accuracy_of_kept"] = float(correct[~rejected].mean())
    return result


def _predict_values(
    net: Method, task: Task, domain: str, out: Path, reject_rate: float
) -> dict[str, Any]:
    """Write the labels whose probability is at least a half, or the numbers, of each sample."""
    if reject_rate:
        raise UnseenError("reject_rate is for predictions of one class; leave it out")
    data = load_split(task.domain(domain), "test")
    outputs = torch.cat([net.predict(batch.x).cpu() for batch in batches_of(data)]).flatten(1)
    samples = sample_names(data, torch.arange(len(outputs)))
    if task.metric == "map":
        labels = task.class_names or tuple(map(str, range(task.classes)))
        rows = (
            ("|".join(n for n, p in zip(labels, row, strict=True) if p >= 0.5), *map(_short, row))
            for row in outputs.sigmoid().tolist()
        )
        header = ["sample", "prediction", *(f"probability of {name}" for name in labels)]
    else:
        rows = (tuple(map(_short, row)) for row in outputs.tolist())
        several = outputs.shape[1] > 1
        header = ["sample", *(f"prediction {i}" for i in range(outputs.shape[1]))]
        header = header if several else ["sample", "prediction"]
    write_csv(out, header, ((n, *row) for n, row in zip(samples, rows, strict=True)))
    return {"domain": domain, "out": str(out), "n": len(outputs), "reject_rate": reject_rate}


def _short(value: float) -> str:
    return f"{value:.6g}"
