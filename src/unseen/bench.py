"""A grid of runs: methods x seeds x settings from a TOML file, in worker processes of one thread each.

What is done is skipped, what was killed is resumed, and a run that crashes is reported while the others go on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import re
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from unseen.checks import whole
from unseen.errors import UnseenError
from unseen.exam import BOUND, evaluate
from unseen.machine import keep_freed_memory
from unseen.methods import method_named
from unseen.progress import GridProgress, RunState, told
from unseen.report.results import write_results
from unseen.run import Run, checked_seed, identity, same_run, train
from unseen.settings import resolve
from unseen.tasks import task_named

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found, no-redef]

log = logging.getLogger("unseen")

POLL = 0.5  # seconds between looks at the workers
RECENT = 20_000  # bytes at the end of the records, enough for the last checkpoint and its numbers


@dataclass(frozen=True)
class Row:
    """One line of the table to come: a method under a setting's name."""

    method: str
    setting: str = "default"
    set: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)  # what the paper reports, by domain, in 0..1

    @property
    def label(self) -> str:
        return self.method if self.setting == "default" else f"{self.method}, {self.setting}"


@dataclass(frozen=True)
class Grid:
    """What a grid file says."""

    path: Path
    task: str
    rows: tuple[Row, ...]
    variants: tuple[str, ...] = ()  # of the task; none means its default alone
    preset: str = "fast"
    seeds: tuple[int, ...] = (0, 1, 2)
    runs: Path = Path("runs")
    results: Path = Path("results")
    set: dict[str, Any] = field(default_factory=dict)  # for every run, below a row's own
    samples: int | None = None  # of each domain at most, in the exam; none means all
    averages: dict[str, list[str]] = field(default_factory=dict)  # further averages over some domains: names or patterns
    command: str = ""

    @property
    def tasks(self) -> list[str]:
        """The task of the grid in each of its variants, as a command line names them."""
        return [f"{self.task}/{variant}" for variant in self.variants] or [self.task]


@dataclass
class Job:
    """One run of the grid, and how it stands."""

    task: str
    row: Row
    seed: int
    folder: Path
    identity: dict[str, Any]  # what its config.json must say
    domains: tuple[str, ...]
    remarks: tuple[str, ...] = ()  # of its method, on such a training
    state: str = "waiting"  # running, done, failed
    said: str = ""
    process: BaseProcess | None = None

    @property
    def label(self) -> str:
        variant = self.task.partition("/")[2]
        return f"{variant} {self.row.label} seed {self.seed}".strip()

    @property
    def steps(self) -> int:
        return int(self.identity["loop"]["steps"])


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UnseenError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UnseenError(f"{path} is not TOML: {error}") from error


def read_grid(path: Path) -> Grid:
    """A grid from its file; whatever is unknown or of the wrong kind is named before anything runs."""
    return grid_of(path, read_toml(path))


def grid_of(path: Path, said: dict[str, Any]) -> Grid:
    """A grid from what its file says."""
    known = {"task", "variants", "preset", "seeds", "runs", "results", "samples", "set", "averages", "row"}
    if unknown := set(said) - known:
        raise UnseenError(f"{path}: unknown {', '.join(sorted(unknown))}; a grid has: {', '.join(sorted(known))}")
    for name, kind in (("task", str), ("row", list)):
        if not isinstance(said.get(name), kind) or not said[name]:
            raise UnseenError(f'{path}: "{name}" is missing: a grid names a task, and its rows as [[row]] with a method each')
    rows = tuple(_row(path, number, entry) for number, entry in enumerate(said.pop("row"), start=1))
    names = [(row.method, row.setting) for row in rows]
    if twice := {f"{m} {s}" for m, s in names if names.count((m, s)) > 1}:
        raise UnseenError(f"{path}: two rows are called {', '.join(twice)}: give one a setting = ...")
    for name in ("preset", "runs", "results"):
        if not isinstance(said.get(name, ""), str):
            raise UnseenError(f"{path}: {name} must be a name, not {said[name]!r}")
    for name in ("runs", "results"):
        said[name] = Path(said.get(name, Path(name) / path.stem))
    if "samples" in said:
        said["samples"] = whole(f"{path}: samples", said["samples"], 1)
    said["set"] = _settings(said.get("set", {}), f"{path}: set")
    for name, domains in _table(said.get("averages", {}), f"{path}: averages").items():
        if not _names(domains) or not domains or name == "average":
            raise UnseenError(f"{path}: an average has a name of its own and a list of domains, not {name} = {domains!r}")
    if not _names(said.setdefault("variants", [])) or len(set(said["variants"])) < len(said["variants"]):
        raise UnseenError(f"{path}: variants must be a list of different names, not {said['variants']!r}")
    said["variants"] = tuple(said["variants"])
    seeds = said.pop("seeds", [0, 1, 2])
    grid = with_seeds(Grid(path, rows=rows, **said), seeds)
    jobs_of(grid)  # every row's settings are looked at before the first run starts
    return replace(grid, command=f"unseen bench {path}")


def with_seeds(grid: Grid, seeds: Sequence[int]) -> Grid:
    """The grid with these seeds."""
    if (
        not isinstance(seeds, list | tuple)
        or not seeds
        or not all(isinstance(s, int) for s in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        raise UnseenError(f"{grid.path}: seeds must be a list of different whole numbers, not {seeds!r}")
    told = f"unseen bench {grid.path} --seeds {' '.join(map(str, seeds))}"
    return replace(grid, seeds=tuple(checked_seed(whole("seed", seed, 0)) for seed in seeds), command=told)


def _row(path: Path, number: int, entry: Any) -> Row:
    known = {"method", "setting", "set", "paper"}
    if not isinstance(entry, dict) or set(entry) - known or not isinstance(entry.get("method"), str):
        raise UnseenError(f"{path}, row {number}: a row has method, and may have setting, set and paper; it is {entry!r}")
    if not isinstance(entry.get("setting", ""), str):
        raise UnseenError(f"{path}, row {number}: setting must be a name, not {entry['setting']!r}")
    for domain, value in _table(entry.get("paper", {}), f"{path}, row {number}: paper").items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UnseenError(f"{path}, row {number}: the paper's figure of {domain} must lie in 0..1, not {value!r}")
    return Row(**{**entry, "set": _settings(entry.get("set", {}), f"{path}, row {number}: set")})


def _names(said: Any) -> bool:
    return isinstance(said, list) and all(isinstance(item, str) for item in said)


def _table(said: Any, where: str) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise UnseenError(f"{where} must be a table, such as {{ steps = 500 }}, not {said!r}")
    return said


def _settings(said: Any, where: str) -> dict[str, Any]:
    """TOML has no word for nothing: "none" stands for it, as on the command line."""
    return {name: None if value == "none" else value for name, value in _table(said, where).items()}


def jobs_of(grid: Grid) -> list[Job]:
    """Every run of the grid, seed by seed, so that a grid that is stopped early has whole seeds."""
    folders: dict[str, Row] = {}
    for row in grid.rows:
        name = re.sub(r"[^A-Za-z0-9_.+=-]+", "-", f"{row.method}-{row.setting}")
        if name in folders:
            raise UnseenError(f"{grid.path}: {row.label} and {folders[name].label} would share the folder {name}: rename one")
        folders[name] = row
    jobs = []
    for word in grid.tasks:
        task = task_named(word)
        folder, domains = grid.runs / word.partition("/")[2], tuple(d.name for d in task.targets)
        for name, row in folders.items():
            try:
                chosen = resolve(task, method_named(row.method), grid.preset, {**grid.set, **row.set})
                net = method_named(row.method)(task.model(**chosen.model), **chosen.method)
            except UnseenError as error:
                raise UnseenError(f"{grid.path}, row {row.label}: {error}") from error
            remarks = tuple(net.remarks(chosen.loop["steps"]))
            for seed in grid.seeds:
                told = identity(task, net, grid.preset, chosen, seed)
                jobs.append(Job(word, row, seed, folder / f"{name}-seed{seed}", told, domains, remarks))
    return sorted(jobs, key=lambda job: grid.seeds.index(job.seed))  # stable: within a seed as the grid has them


def run_grid(grid: Grid, workers: int = 2, quiet: bool = False) -> dict[str, Any]:
    """Train and examine what is not yet there, then write the tables; says which runs failed."""
    whole("workers", workers, 1)
    jobs = jobs_of(grid)
    for job in jobs:
        job.folder.parent.mkdir(parents=True, exist_ok=True)
        if _examined(job, grid.samples):
            job.state = "done"
    for remark in dict.fromkeys(f"{job.row.label}: {remark}" for job in jobs for remark in job.remarks if job.state != "done"):
        log.warning(remark)
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they start
    os.environ["PYTHONSAFEPATH"] = "1"  # a worker must not import what happens to lie in the folder it is called from
    with GridProgress(str(grid.path), quiet) as shown:
        try:
            going = True
            while going:
                _look_after(grid, jobs, workers)
                shown.at([_standing(job) for job in jobs])
                if going := any(job.state in ("waiting", "running") for job in jobs):
                    time.sleep(POLL)
        finally:
            for job in jobs:
                if job.process is not None and job.process.is_alive():
                    job.process.terminate()
    return {**write_tables(grid, jobs), "failed": {job.label: job.said for job in jobs if job.state == "failed"}}


def write_tables(grid: Grid, jobs: Sequence[Job] | None = None) -> dict[str, Any]:
    """Tables from the records of the runs that are finished."""
    jobs = jobs_of(grid) if jobs is None else jobs
    runs = []
    for job in jobs:
        if _examined(job, grid.samples):
            run = Run(job.folder)
            runs.append({"variant": job.identity["variant"], "method": job.row.method, "setting": job.row.setting,
                         "label": job.row.label, "seed": job.seed, "paper": job.row.paper,
                         "config": run.config, "records": run.records()})  # fmt: skip
    tasks = [task_named(word) for word in grid.tasks]
    facts = {"grid": str(grid.path), "command": grid.command, "task": tasks[0].name, "metric": tasks[0].metric,
             "samples": grid.samples, "averages": grid.averages,
             "variants": {task.variant: {"source": task.source.name, "domains": [d.name for d in task.targets]}
                          for task in tasks}}  # fmt: skip
    return {"results": str(grid.results), "runs": len(runs), "wanted": len(jobs),
            "summary": write_results(grid.results, facts, runs)}  # fmt: skip


def _look_after(grid: Grid, jobs: list[Job], workers: int) -> None:
    for job in jobs:
        if job.state == "running" and job.process is not None and not job.process.is_alive():
            job.process.join()
            job.state = "done" if job.process.exitcode == 0 and _examined(job, grid.samples) else "failed"
            job.said = "" if job.state == "done" else _last_words(job)
    free = workers - sum(job.state == "running" for job in jobs)
    for job in [job for job in jobs if job.state == "waiting"][: max(free, 0)]:
        start = multiprocessing.get_context("spawn").Process
        settings = {**grid.set, **job.row.set}
        words = (job.task, job.row.method, grid.preset, settings, job.seed, str(job.folder), str(_log_of(job)), grid.samples)
        job.process = start(target=_work, args=words, daemon=True)
        job.process.start()
        job.state = "running"


def _work(
    task: str, method: str, preset: str, settings: dict[str, Any], seed: int, folder: str, log: str, samples: int | None
) -> None:
    """One run, in a process of its own: whatever becomes of it, the grid goes on."""
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()
    threading.Thread(target=end_with_parent, daemon=True).start()
    with Path(log).open("w") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
        try:
            made = task_named(task)
            run = train(made, method, folder, preset=preset, overrides=settings, seed=seed, resume=True, task_word=task)
            evaluate(run, made, kept=True, samples=samples)
            shutil.rmtree(run.folder / "kept", ignore_errors=True)  # examined: their figures are in the records now
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
    bounds = {r["value"] for r in last if r["metric"] == BOUND}
    return {r["domain"] for r in last} >= set(job.domains) and bounds == ({samples} if samples else set())


def _standing(job: Job) -> RunState:
    """How a run stands, from the end of its records: they are written at every checkpoint."""
    step, watched = 0, dict[str, float]()
    path = job.folder / "records.jsonl"
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - RECENT))
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the first line is cut, the last may be torn
                record = json.loads(line)
                step = max(step, int(record["step"]))
                if record["metric"] in ("loss", "source_accuracy", "source_miou"):
                    watched[record["metric"].replace("_", " ")] = float(record["value"])
    said = told(dict(sorted(watched.items()))) if job.state == "running" else job.said
    return RunState(job.label, job.state, job.steps if job.state == "done" else step, job.steps, said)
