"""`unseen predict`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Device, Json, RunFolder, TaskWord, emit, task_of
from unseen.experiments.predict import predict_domain
from unseen.report.tables import percent, show
from unseen.training.run import Run


def predict(
    run: RunFolder,
    *,
    domain: str,
    out: Path,
    reject_rate: float = 0.0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Predict every sample of a domain, with its probability of being correct.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source.
    out
        CSV file: sample, prediction, probability, correctness, rejected.
    reject_rate
        Part of the samples to hand to a person: those least likely to be correct.
    """
    finished = Run(run)
    result = predict_domain(
        finished, task_of(finished, task), domain, out, reject_rate=reject_rate, device=device
    )
    if not emit(result, json_):
        rows = [
            ["samples", str(result["n"])],
            ["handed to a person", str(result["rejected"])],
            ["expected accuracy of the rest", percent(result["expected_accuracy_of_kept"])],
        ]
        if "accuracy" in result:
            rows.append(["accuracy of all", percent(result["accuracy"])])
            rows.append(["accuracy of the rest", percent(result["accuracy_of_kept"])])
        show(f"{domain}: predictions in {out}", ["", ""], rows)
