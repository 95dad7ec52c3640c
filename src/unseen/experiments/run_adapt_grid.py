"""Run a grid of adaptations: train its starting points, adapt what is missing, write the tables.

The starting points are an ordinary grid of runs. Each adaptation has a small JSON file.
"""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.experiments.adapt import AdaptationData, Plan, adapt_once
from unseen.experiments.adapt_grid import AdaptationGrid, PlannedAdaptation, plan_adaptations
from unseen.experiments.grid import PlannedRun, plan_runs
from unseen.experiments.run_grid import run_grid
from unseen.experiments.runners.jobs import Job, Runner, run_jobs
from unseen.experiments.runners.local import LocalRunner
from unseen.files import read_json, write_json
from unseen.report.tables.adaptation import write_adaptation_results
from unseen.report.units import is_error
from unseen.tasks import task_named
from unseen.training.identity import commit_here
from unseen.training.progress import GridProgress, RunState
from unseen.training.run import Run

log = logging.getLogger("unseen")

Call = tuple[str, Plan, int, dict[str, Any], Path]  # label, plan, seed, identity, result file


def run_adaptation_grid(
    grid: AdaptationGrid, workers: int = 1, quiet: bool = False, runner: Runner | None = None
) -> dict[str, Any]:
    """Train the starting points, run the missing adaptations, write the tables, report failures."""
    runner = runner or LocalRunner(workers)
    failed = dict(run_grid(grid.starts, quiet=quiet, runner=runner)["failed"])
    for adaptation in plan_adaptations(grid):
        if adaptation.path.exists() and read_result(adaptation) is None:
            log.warning("%s is damaged; the adaptation is repeated", adaptation.path)
            adaptation.path.unlink()
    groups = _pending_groups(grid)
    jobs = [_job(group) for group in groups]
    with GridProgress(str(grid.starts.path), quiet) as display:
        run_jobs(
            jobs,
            runner,
            lambda: display.show([_state(g, j) for g, j in zip(groups, jobs, strict=True)]),
        )
    for group, job in zip(groups, jobs, strict=True):
        for adaptation in group:
            if not adaptation.path.exists():
                failed[adaptation.label] = _failure(adaptation, job)
    return {**write_tables(grid), "failed": failed}


def _pending_groups(grid: AdaptationGrid) -> list[list[PlannedAdaptation]]:
    """Return the missing adaptations, grouped by starting point and draw.

    A group is one job: its data and its starting point are loaded once.
    """
    groups: dict[tuple[Path, int], list[PlannedAdaptation]] = {}
    for adaptation in plan_adaptations(grid):
        if not adaptation.path.exists() and Run(adaptation.start.folder).done:
            groups.setdefault((adaptation.start.folder, adaptation.seed), []).append(adaptation)
    return list(groups.values())


def _job(group: Sequence[PlannedAdaptation]) -> Job:
    start = group[0].start
    calls: list[Call] = [(a.label, a.plan, a.seed, a.identity, a.path) for a in group]
    return Job(
        label=f"{start.identity['variant']} from {start.row.label} seed {group[0].seed}",
        function=_adapt_group,
        arguments=(start.task, start.folder, calls),
        log=group[0].path.with_name(f"{start.folder.name}-draw{group[0].seed}.log"),
        succeeded=lambda: all(a.path.exists() for a in group),
    )


def _state(group: Sequence[PlannedAdaptation], job: Job) -> RunState:
    finished = sum(a.path.exists() for a in group)
    return RunState(job.label, job.state, finished, len(group), job.message)


def _failure(adaptation: PlannedAdaptation, job: Job) -> str:
    """Return the error that the worker has logged for an adaptation, else why the job ended."""
    prefix = f"{adaptation.label} failed: "
    lines = job.log.read_text().splitlines() if job.log.exists() else []
    return next((ln.removeprefix(prefix) for ln in lines if ln.startswith(prefix)), job.message)


def _adapt_group(task: str, folder: Path, calls: Sequence[Call]) -> None:
    """Adapt one starting point several times; an adaptation that fails does not stop the others."""
    data = AdaptationData(task_named(task), None)
    for label, plan, seed, identity, path in calls:
        try:
            _adapt_to_file(data, folder, plan, seed, identity, path)
        except UnseenError as error:
            print(f"{label} failed: {error}")
        except Exception as error:
            traceback.print_exc()
            print(f"{label} failed: {type(error).__name__}: {error}")


def _adapt_to_file(
    data: AdaptationData,
    folder: Path,
    plan: Plan,
    seed: int,
    identity: dict[str, Any],
    path: Path,
) -> None:
    net = Run(folder).load(data.task, "cpu")
    began, used = time.monotonic(), time.process_time()
    adapted = adapt_once(net, data, plan, seed, progress=False)
    cost = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - used}
    target, source = (
        data.evaluate(net, split, adapted.model) for split in (data.test, data.source_test)
    )
    result = {"target": target, "source": source, "share": adapted.coefficient}
    write_json(path, {**identity, **result, **cost, "commit": commit_here()})


def read_result(adaptation: PlannedAdaptation) -> dict[str, Any] | None:
    """Read the result of an adaptation; None if it is missing, damaged or of another adaptation."""
    try:
        content = read_json(adaptation.path)
        identity = {name: content[name] for name in adaptation.identity}
        fractions = [float(content[name]) for name in ("target", "source", "share")]
        costs = [float(content[name]) for name in ("seconds", "cpu_seconds")]
    except (UnseenError, KeyError, TypeError, ValueError):
        return None
    same = identity == json.loads(json.dumps(adaptation.identity))
    valid = all(0 <= value <= 1 for value in fractions) and all(map(math.isfinite, costs))
    return content if same and valid else None


def write_tables(grid: AdaptationGrid) -> dict[str, Any]:
    """Write the tables of all finished adaptations; starting points have the setting 0-shot."""
    adaptations = plan_adaptations(grid)
    cells = [
        {
            "variant": a.start.identity["variant"],
            "method": a.method,
            "setting": a.setting,
            "start": a.start.row.label,
            **result,
            "seed": a.seed,
        }
        for a in adaptations
        if (result := read_result(a)) is not None
    ]
    starts = [start for start in plan_runs(grid.starts) if Run(start.folder).done]
    zero_shot = [cell for start in starts for cell in _zero_shot_cell(start)]
    tasks = [task_named(word) for word in grid.starts.tasks]
    if is_error(tasks[0].metric):
        raise UnseenError(
            f"{tasks[0].name} is measured by {tasks[0].metric}: the tables of adapt-grid show "
            "fractions; use `unseen adapt` on each run"
        )
    facts = {
        "grid": str(grid.starts.path),
        "command": f"unseen adapt-grid {grid.starts.path}",
        "task": tasks[0].name,
        "metric": tasks[0].metric,
        "paper": grid.paper,
        "variants": {
            task.variant: {"source": task.source.name, "domain": task.targets[0].name}
            for task in tasks
        },
    }
    summary = write_adaptation_results(grid.results, facts, zero_shot + cells) if cells else []
    return {
        "results": str(grid.results),
        "adapted": len(cells),
        "wanted": len(adaptations),
        "summary": summary,
        "failed": {},
    }


def _zero_shot_cell(start: PlannedRun) -> list[dict[str, Any]]:
    """Return the metrics of a starting point, from its records; nothing before its evaluation."""
    task = task_named(start.task)
    values = {
        r["domain"]: r["value"]
        for r in Run(start.folder).records()
        if r["split"] == "test" and r["step"] == start.steps and r["metric"] == task.metric
    }
    if not {task.source.name, start.domains[0]} <= values.keys():
        return []
    return [
        {
            "variant": task.variant,
            "method": start.row.label,
            "setting": "0-shot",
            "start": start.row.label,
            "with": None,
            "seed": start.seed,
            "target": values[start.domains[0]],
            "source": values[task.source.name],
        }
    ]
