"""`unseen report`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Device, Json, OwnData, emit, say, task_of
from unseen.errors import UnseenError
from unseen.report.write import write_report


def report(
    *runs: Path, out: Path, own: OwnData = None, device: Device = "auto", json_: Json = False
) -> None:
    """Write an HTML page with figures and tables of finished runs; needs no data and no model.

    With --data, the runs are evaluated on these data and judge them first.

    Parameters
    ----------
    runs
        Run folders, or folders that contain some, of any tasks; also results of
        `unseen compare-scores` and `unseen adapt-grid`.
    out
        Folder for report.html, tables.md and tables/.
    """
    if not runs:
        raise UnseenError("no run given: unseen report RUNS [RUNS ...] --out DIR")
    if own is not None:
        if own.data is None:
            raise UnseenError("--model and --trust-code belong to --data: add --data, or drop them")
        for run in runs:
            _judge(run, own, device)
    result = write_report(runs, out)
    if not emit(result, json_):
        print(f"{result['page']}: {result['bytes'] / 1e6:.1f} MB; tables are in the same folder")


def _judge(folder: Path, own: OwnData, device: str) -> None:
    """Evaluate a run on other data and judge every domain of them; the run records both."""
    from unseen.experiments.evaluate import evaluate  # torch, which a report does without
    from unseen.experiments.score import score
    from unseen.training.run import Run

    run = Run(folder)
    task = task_of(run, None, own)
    evaluate(run, task, device)
    for domain in task.targets:
        say(f"{domain.name}: {score(run, task, domain.name, device=device)['sentence']}")
