"""Export a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from unseen.api import Task
from unseen.checks import check_choice
from unseen.deploy.export import export_onnx, export_program
from unseen.deploy.scorer_of_run import about_run, example_of
from unseen.errors import UnseenError
from unseen.experiments.run_estimator import estimator_of
from unseen.training.run import Run

Format = Literal["onnx", "torch_export"]
SUFFIXES = {"onnx": ".onnx", "torch_export": ".pt2"}
WRITERS = {"onnx": export_onnx, "torch_export": export_program}


def export_run(run: Run, task: Task, out: Path, format: Format = "onnx") -> dict[str, Any]:
    """Write the model of a run with its score, thresholds and accuracy estimator."""
    suffix = SUFFIXES[check_choice("format", format, tuple(SUFFIXES))]
    if out.suffix != suffix:
        raise UnseenError(f"{out} must end in {suffix}, as --format is {format}")
    net = run.load(task, "cpu")
    example = example_of(task)
    estimator = estimator_of(run, task, net) if net.objective.classifies else None
    about = about_run(run, task)
    calibration = WRITERS[format](
        net, example, out, classes=task.class_names, about=about, estimator=estimator
    )
    return {
        "out": str(out),
        "format": format,
        "bytes": out.stat().st_size,
        "detector": calibration.detector,
        "inputs": [vars(i) for i in calibration.inputs],
        "classes": list(calibration.classes),
        "thresholds": calibration.more["thresholds"],
        "estimates_accuracy": calibration.accuracy is not None,
    }
