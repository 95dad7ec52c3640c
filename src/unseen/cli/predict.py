"""`unseen predict`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import (
    Device,
    Json,
    OwnData,
    RunFolder,
    TaskWord,
    emit,
    only_domain,
    task_of,
)
from unseen.experiments.predict import predict_domain
from unseen.report.tables import percent, show
from unseen.training.run import Run


def predict(
    run: RunFolder,
    *,
    domain: str | None = None,
    out: Path,
    reject_rate: float = 0.0,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Predict every sample of a domain, with its probability of being correct.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source. Optional if there is one unseen.
    out
        CSV file: sample, prediction, probability, correctness, rejected; for several labels and
        numbers, sample and prediction.
    reject_rate
        Part of the samples to hand to a person: those least likely to be correct.
    """
    finished = Run(run)
    chosen = task_of(finished, task, own)
    domain = only_domain(chosen, domain)
    result = predict_domain(finished, chosen, domain, out, reject_rate=reject_rate, device=device)
    if not emit(result, json_):
        rows = [["samples", str(result["n"])]]
        if "rejected" in result:
            kept = percent(result["expected_accuracy_of_kept"])
            rows.append(["handed to a person", str(result["rejected"])])
            rows.append(["expected accuracy of the rest", kept])
        if "accuracy" in result:
            rows.append(["accuracy of all", percent(result["accuracy"])])
            rows.append(["accuracy of the rest", percent(result["accuracy_of_kept"])])
        show(f"{domain}: predictions in {out}", ["", ""], rows)
