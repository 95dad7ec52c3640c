"""`unseen export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.options import Json, OwnData, RunFolder, TaskWord, emit, task_of
from unseen.deploy.export_run import Format, export_run
from unseen.report.tables import show
from unseen.training.run import Run


def export(
    run: RunFolder,
    *,
    out: Path,
    format_: Annotated[Format, Parameter(name="--format")] = "onnx",
    task: TaskWord = None,
    own: OwnData = None,
    json_: Json = False,
) -> None:
    """Write a run's model with its score, thresholds and accuracy estimator to one file.

    `unseen.deploy.OnnxDetector` reads an ONNX file with numpy and onnxruntime alone. The first call
    for a run fits the accuracy estimator and saves it in the run's folder.

    Parameters
    ----------
    out
        File to write: .onnx, or .pt2 for torch_export.
    format_
        ONNX, or the program that torch.export makes.
    """
    finished = Run(run)
    result = export_run(finished, task_of(finished, task, own), out, format_)
    if not emit(result, json_):
        table = result["thresholds"]
        rows = [
            [str(n), *(f"{value:.4g}" for value in values)]
            for n, values in zip(table["batch_sizes"], table["values"], strict=True)
        ]
        rates = [f"rate {rate:g}" for rate in table["rates"]]
        title = f"{out}: {result['detector']}, {result['bytes'] / 1e6:.1f} MB; thresholds"
        show(title, ["batch", *rates], rows)
