"""A grid of runs: methods x seeds x settings from a TOML file, in worker processes of one thread each.

What is done is skipped, what was killed is resumed, and a run that crashes is reported while the others go on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen.checks import check_int
from unseen.errors import UnseenError
from unseen.experiments.evaluate import SUBSAMPLE_METRIC, evaluate
from unseen.experiments.grid import Grid, Job, jobs_of
from unseen.experiments.published_runs import must_keep
from unseen.report.write import write_results
from unseen.tasks import task_named
from unseen.training.machine import keep_freed_memory
from unseen.training.progress import GridProgress, RunState, format_metrics
from unseen.training.run import Run, same_run
from unseen.training.train import train

log = logging.getLogger("unseen")

POLL = 0.5  # seconds between looks at the workers
RECENT = 20_000  # bytes at the end of the records, enough for the last checkpoint and its numbers


def run_grid(grid: Grid, workers: int = 2, quiet: bool = False) -> dict[str, Any]:
    """Train and examine what is not yet there, then write the tables; says which runs failed."""
    check_int("workers", workers, 1)
    jobs = jobs_of(grid)
    _must_keep_published(grid, jobs)  # before hours of training, too
    for job in jobs:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        if _examined(job, grid.samples) or job.earlier:
            job.state = "done"
    for remark in dict.fromkeys(
        f"{job.row.label}: {remark}"
        for job in jobs
        for remark in job.remarks
        if job.state != "done"
    ):
        log.warning(remark)
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they start
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # a worker must not import what happens to lie in the folder it is called from
    )
    with GridProgress(str(grid.path), quiet) as shown:
        try:
            going = True
            while going:
                _look_after(grid, jobs, workers)
                shown.show([_standing(job) for job in jobs])
                if going := any(job.state in ("waiting", "running") for job in jobs):
                    time.sleep(POLL)
        finally:
            for job in jobs:
                if job.process is not None and job.process.is_alive():
                    job.process.terminate()
    return {
        **write_tables(grid, jobs),
        "failed": {job.label: job.said for job in jobs if job.state == "failed"},
    }


def write_tables(grid: Grid, jobs: Sequence[Job] | None = None) -> dict[str, Any]:
    """Tables from the records of the runs that are finished, and from what earlier results say of others."""
    jobs = jobs_of(grid) if jobs is None else jobs
    runs: list[dict[str, Any]] = []
    finished: list[Job] = []
    for job in sorted(
        jobs, key=lambda job: grid.rows.index(job.row)
    ):  # stable: of a row as the grid has them
        row = {"variant": job.identity["variant"], "method": job.row.method, "setting": job.row.setting,
               "label": job.row.label, "seed": job.seed, "paper": job.row.paper}  # fmt: skip
        if _examined(job, grid.samples):
            run = Run(job.folder)
            runs.append({**row, "config": run.config, "records": run.records()})
        elif job.earlier:
            runs.append({**row, **job.earlier})
        else:
            continue
        finished.append(job)
    tasks = [task_named(word) for word in grid.tasks]
    _must_keep_published(grid, finished)
    facts = {"grid": str(grid.path), "command": grid.command, "first_row": grid.rows[0].label,
             "task": tasks[0].name, "metric": tasks[0].metric,
             "samples": grid.samples, "averages": grid.averages,
             "variants": {task.variant: {"source": task.source.name, "domains": [d.name for d in task.targets]}
                          for task in tasks}}  # fmt: skip
    return {"results": str(grid.results), "runs": len(runs), "wanted": len(jobs),
            "summary": write_results(grid.results, facts, runs)}  # fmt: skip


def _must_keep_published(grid: Grid, jobs: Sequence[Job]) -> None:
    """Tables of these runs must not take the place of published ones that hold others."""
    for folder in grid.published:
        if folder.resolve() == grid.results.resolve():
            must_keep(folder, [job.key for job in jobs])


def _look_after(grid: Grid, jobs: list[Job], workers: int) -> None:
    for job in jobs:
        if job.state == "running" and job.process is not None and not job.process.is_alive():
            job.process.join()
            job.state = (
                "done" if job.process.exitcode == 0 and _examined(job, grid.samples) else "failed"
            )
            job.said = "" if job.state == "done" else _last_words(job)
    free = workers - sum(job.state == "running" for job in jobs)
    for job in [job for job in jobs if job.state == "waiting"][: max(free, 0)]:
        start = multiprocessing.get_context("spawn").Process
        settings = {**grid.set, **job.row.set}
        words = (
            job.task,
            job.row.method,
            grid.preset,
            settings,
            job.seed,
            str(job.folder),
            str(_log_of(job)),
            grid.samples,
        )
        job.process = start(target=_work, args=words, daemon=True)
        job.process.start()
        job.state = "running"


def _work(
    task: str,
    method: str,
    preset: str,
    settings: dict[str, Any],
    seed: int,
    folder: str,
    log: str,
    samples: int | None,
) -> None:
    """One run, in a process of its own: whatever becomes of it, the grid goes on."""
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()
    threading.Thread(target=end_with_parent, daemon=True).start()
    with (
        Path(log).open("w") as file,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(file),
    ):
        try:
            made = task_named(task)
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
            shutil.rmtree(
                run.folder / "kept", ignore_errors=True
            )  # examined: their figures are in the records now
        except UnseenError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except Exception:
            traceback.print_exc(file=file)
            raise SystemExit(1) from None


def end_with_parent() -> None:
    """A grid that is killed must not leave workers behind: started again, two would write into one folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _log_of(job: Job) -> Path:
    return job.folder.with_name(f"{job.folder.name}.log")


def _last_words(job: Job) -> str:
    code = job.process.exitcode if job.process is not None else None
    with contextlib.suppress(OSError):
        lines = [line for line in _log_of(job).read_text().splitlines() if line.strip()]
        if lines:
            return f"{lines[-1].strip()} (exit {code}, {_log_of(job)})"
    return f"exit {code}"


def _examined(job: Job, samples: int | None) -> bool:
    """Is the run finished, and does its record hold the figures of that many samples of every unseen domain?"""
    run = Run(job.folder)
    if not run.done:
        return False
    same_run(run, job.identity)
    last = [r for r in run.records() if r["split"] == "test" and r["step"] == job.steps]
    bounds = {r["value"] for r in last if r["metric"] == SUBSAMPLE_METRIC}
    return {r["domain"] for r in last} >= set(job.domains) and bounds == (
        {samples} if samples else set()
    )


def _standing(job: Job) -> RunState:
    """How a run stands, from the end of its records: they are written at every checkpoint."""
    step, watched = 0, dict[str, float]()
    path = job.folder / "records.jsonl"
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - RECENT))
        for line in file.read().splitlines():
            with contextlib.suppress(
                ValueError, KeyError, TypeError
            ):  # the first line is cut, the last may be torn
                record = json.loads(line)
                step = max(step, int(record["step"]))
                if record["metric"] in ("loss", "source_accuracy", "source_miou"):
                    watched[record["metric"].replace("_", " ")] = float(record["value"])
    said = format_metrics(dict(sorted(watched.items()))) if job.state == "running" else job.said
    return RunState(
        job.label, job.state, job.steps if job.state == "done" else step, job.steps, said
    )
