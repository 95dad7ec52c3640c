"""Open a finished run, or an exported model, to ask it."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.checks import check_path
from unseen.deploy.onnx_detector import OnnxDetector
from unseen.deploy.scorer import Scorer
from unseen.errors import UnseenError
from unseen.functional.verdict import RATE

if TYPE_CHECKING:
    from unseen.api import Task

ONNX = ".onnx"


def is_exported(path: str | PathLike[str]) -> bool:
    """Return whether this is an exported model by its name, not the folder of a run."""
    return Path(path).suffix.lower() == ONNX


def open_scorer(
    path: str | PathLike[str],
    *,
    rate: float = RATE,
    device: str = "auto",
    threads: int | None = None,
    task: Task | str | None = None,
    data: str | PathLike[str] | None = None,
    model: str | None = None,
    method: str | None = None,
    trust_code: bool = False,
    verdicts: bool = True,
) -> Scorer:
    """Open the folder of a finished run, with torch, or an exported model.onnx, without.

    Nothing of the run is executed unless `model`, `method` or `trust_code` allows it.

    Args:
        rate: false-alarm rate of `alarm` and `verdict`.
        device: of a run: auto, cpu or cuda.
        threads: of onnxruntime, for an exported model; by default its own choice.
        task: of a run on a task of one's own.
        data: the run's own data in another place, to fit its accuracy estimator.
        model: name of the network of a run on one's own data, package.module:function.
        method: name of one's own method, package.module:Class.
        trust_code: import the network and the method that the run names.
        verdicts: with the run's accuracy estimator, which is fitted and saved if there is none yet.
    """
    chosen = check_path("path", path)
    if is_exported(chosen):
        given = {"task": task, "data": data, "model": model, "method": method}
        if extra := [name for name, value in given.items() if value is not None]:
            raise UnseenError(f"{chosen} is an exported model: leave out --{extra[0]}")
        return OnnxDetector(chosen, rate=rate, threads=threads)
    return _open_run(chosen, rate, device, verdicts, task, data, model, method, trust_code)


def _open_run(
    folder: Path, rate: float, device: str, verdicts: bool, task: Task | str | None, *own: Any
) -> Scorer:
    from unseen.deploy.scorer_of_run import scorer_of_run
    from unseen.experiments.run_task import task_of_run_folder
    from unseen.training.run import Run

    run = Run(folder)
    if task is None or isinstance(task, str):
        data, model, method, trust_code = own
        task = task_of_run_folder(
            run,
            task,
            data=None if data is None else str(data),
            model=model,
            method=method,
            trust_code=trust_code,
        )
    return scorer_of_run(run, task, rate=rate, device=device, verdicts=verdicts)
