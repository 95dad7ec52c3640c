"""Run a grid: train and evaluate what is not finished, in worker processes, and write the tables.

Finished runs are skipped and interrupted ones are resumed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.experiments.evaluate import SUBSAMPLE_METRIC, evaluate
from unseen.experiments.grid import Grid, PlannedRun, labelled_targets, plan_runs
from unseen.experiments.published_runs import check_nothing_lost
from unseen.experiments.runners.jobs import Job, Runner, run_jobs
from unseen.experiments.runners.local import LocalRunner
from unseen.files import is_locked, locked
from unseen.report.write import write_results
from unseen.schema import merge
from unseen.tasks import task_named
from unseen.training.progress import GridProgress, RunState, format_metrics
from unseen.training.run import Run
from unseen.training.train import train

log = logging.getLogger("unseen")

TAIL = 20_000  # bytes at the end of the records, enough for the last checkpoint and its metrics
LIVE = ("loss", "source_accuracy", "source_miou", "source_map", "source_mae")


def run_grid(
    grid: Grid, workers: int = 2, quiet: bool = False, runner: Runner | None = None
) -> dict[str, Any]:
    """Train and evaluate the missing runs, write the tables, and report which runs failed.

    Args:
        workers: runs at a time, in processes of this machine.
        runner: runs them elsewhere, e.g. on a cluster.
    """
    runner = runner or LocalRunner(workers)
    runs = plan_runs(grid)
    _check_published_kept(grid, runs)  # also before hours of training
    for field, folder in (("runs", grid.runs), ("results", grid.results)):
        _check_is_writable(grid.path, field, folder)
    jobs = [_job(grid, run) for run in runs]
    pending = [run for run, job in zip(runs, jobs, strict=True) if job.state == "waiting"]
    for warning in dict.fromkeys(f"{run.row.label}: {w}" for run in pending for w in run.warnings):
        log.warning(warning)
    with GridProgress(str(grid.path), quiet) as display:
        failed = run_jobs(
            jobs,
            runner,
            lambda: display.show([run_state(r, j) for r, j in zip(runs, jobs, strict=True)]),
        )
    return {**write_tables(grid, runs), "failed": failed}


def _job(grid: Grid, run: PlannedRun) -> Job:
    settings = merge(grid.set, run.row.set)
    job = Job(
        label=run.label,
        function=_train_and_evaluate,
        arguments=(
            *(run.task, run.row.method, grid.preset, settings),
            *(run.seed, run.folder, grid.samples),
        ),
        log=run.folder.with_name(f"{run.folder.name}.log"),
        succeeded=lambda: is_evaluated(run, grid.samples),
        held=lambda: is_locked(run.folder),
    )
    if is_evaluated(run, grid.samples) or run.published:
        job.state = "done"
    return job


def _train_and_evaluate(
    task: str,
    method: str,
    preset: str,
    settings: dict[str, Any],
    seed: int,
    folder: Path,
    samples: int | None,
) -> None:
    made = task_named(task)
    with locked(folder):  # for both: another grid must not evaluate while this one does
        run = train(
            made,
            method,
            folder,
            preset=preset,
            overrides=settings,
            seed=seed,
            resume=True,
            task_word=task,
        )
        evaluate(run, made, kept=True, samples=samples)
        shutil.rmtree(run.folder / "kept", ignore_errors=True)  # their metrics are in the records


def write_tables(grid: Grid, runs: Sequence[PlannedRun] | None = None) -> dict[str, Any]:
    """Write the tables of all finished runs, from their records or from published results."""
    runs = plan_runs(grid) if runs is None else runs
    finished: list[PlannedRun] = []
    results: list[dict[str, Any]] = []
    for run in sorted(runs, key=lambda run: grid.rows.index(run.row)):  # keeps the order in a row
        description = {
            "variant": run.identity["variant"],
            "method": run.row.method,
            "setting": run.row.setting,
            "label": run.row.label,
            "seed": run.seed,
            "paper": run.row.paper,
        }
        if is_evaluated(run, grid.samples):
            folder = Run(run.folder)
            results.append({**description, "config": folder.config, "records": folder.records()})
        elif run.published:
            results.append({**description, **run.published})
        else:
            continue
        finished.append(run)
    _check_published_kept(grid, finished)
    return {
        "results": str(grid.results),
        "runs": len(results),
        "wanted": len(runs),
        "summary": write_results(grid.results, _facts(grid), results),
    }


def _facts(grid: Grid) -> dict[str, Any]:
    tasks = [task_named(word) for word in grid.tasks]
    return {
        "grid": str(grid.path),
        "command": grid.command,
        "first_row": grid.rows[0].label,
        "task": tasks[0].name,
        "metric": tasks[0].metric,
        "samples": grid.samples,
        "averages": grid.averages,
        "variants": {
            task.variant: {"source": task.source.name, "domains": list(labelled_targets(task))}
            for task in tasks
        },
    }


def _check_is_writable(grid: Path, field: str, folder: Path) -> None:
    """Raise if the folder, or the first one above it that is there, cannot be written."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "cannot be written" if there.is_dir() else "is not a folder"
        raise UnseenError(f"{grid}: {field} = {folder}: {there} {why}; name another folder")


def _check_published_kept(grid: Grid, runs: Sequence[PlannedRun]) -> None:
    """Refuse to overwrite published tables with tables of fewer runs."""
    for folder in grid.published:
        if folder.resolve() == grid.results.resolve():
            check_nothing_lost(folder, [run.key for run in runs])


def is_evaluated(run: PlannedRun, samples: int | None) -> bool:
    """Return whether the run is finished and evaluated on `samples` samples of every domain."""
    finished = Run(run.folder)
    if not finished.done:
        return False
    finished.check_same(run.identity)
    last = [r for r in finished.records() if r["split"] == "test" and r["step"] == run.steps]
    bounds = {r["value"] for r in last if r["metric"] == SUBSAMPLE_METRIC}
    return {r["domain"] for r in last} >= set(run.domains) and bounds == (
        {samples} if samples else set()
    )


def run_state(run: PlannedRun, job: Job) -> RunState:
    """Return the progress of a run, from the end of its records."""
    step, metrics = 0, dict[str, float]()
    path = run.folder / "records.jsonl"
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        for line in file.read().splitlines():
            # The first line is cut off; the last may be half written.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                step = max(step, int(record["step"]))
                if record["metric"] in LIVE:
                    metrics[record["metric"].replace("_", " ")] = float(record["value"])
    message = (
        format_metrics(dict(sorted(metrics.items()))) if job.state == "running" else job.message
    )
    step = run.steps if job.state == "done" else step
    return RunState(run.label, job.state, step, run.steps, message)
