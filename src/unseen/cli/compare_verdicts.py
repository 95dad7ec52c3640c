"""`unseen compare-verdicts`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Count, Device, Json, RunFolder, TaskWord, emit, task_of
from unseen.errors import UnseenError
from unseen.experiments.compare_verdicts import SIZES, judge_run
from unseen.report.tables import percent, show
from unseen.report.tables.verdicts import write_verdicts
from unseen.training.run import Run


def compare_verdicts(
    *runs: RunFolder,
    out: Path | None = None,
    tolerance: float = 0.05,
    rate: float = 0.01,
    samples: Count = 1000,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Measure how often verdicts are right: on source data, harmless and costly shifts.

    Parameters
    ----------
    out
        Folder for summary.json and table.md; runs of several tasks and seeds may be given.
    tolerance
        Loss of accuracy against the source that is still fine.
    rate
        Rate at which batches of the source are called shifted, or failing.
    samples
        Random samples of each set, at most.
    """
    if not runs:
        raise UnseenError("name a finished run: unseen compare-verdicts RUN... --out FOLDER")
    results = []
    for run in map(Run, runs):
        chosen = task_of(run, task)
        results.append(
            judge_run(run, chosen, tolerance=tolerance, rate=rate, samples=samples, device=device)
        )
    if out is not None:
        words = ["unseen compare-verdicts", *map(str, runs), "--out", str(out)]
        words += [] if samples == 1000 else ["--samples", str(samples)]
        write_verdicts(out, results, " ".join(words))
    if not emit(results[0] if len(results) == 1 else {"runs": results}, json_):
        for result in results:
            rows = [
                [group, str(cells["sets"]), str(n), *map(percent, cells["rates"][str(n)].values())]
                for group, cells in result["groups"].items()
                for n in SIZES
            ]
            names = list(next(iter(result["groups"].values()))["rates"][str(SIZES[0])])
            show(
                f"{result['task']} seed {result['seed']}: batches on which each test fires, %",
                ["shift", "sets", "batch", *names],
                rows,
            )
