"""A grid of adaptations: starts x ways to adapt x shots x draws, from a TOML file. What is done is skipped.

The starts are trained as a grid of `unseen bench`; each adaptation then is one small JSON file, whole or absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import multiprocessing
import re
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from unseen.checks import check_int
from unseen.errors import UnseenError
from unseen.experiments.adapt import AdaptationData, Plan, draw_seed, one_draw
from unseen.experiments.grid import Grid, Job, grid_of, jobs_of, read_toml
from unseen.experiments.run_grid import end_with_parent, run_grid
from unseen.files import read_json, write_json
from unseen.methods import method_named
from unseen.report.tables.adaptation import write_adaptation_results
from unseen.tasks import task_named
from unseen.training.identity import commit_here
from unseen.training.machine import keep_freed_memory
from unseen.training.run import Run

log = logging.getLogger("unseen")

OWN = (
    "shots",
    "draws",
    "start",
    "row",
    "paper",
    "results",
)  # the rest of the file is about training the starts


@dataclass(frozen=True)
class AdaptationSpec:
    """One way to adapt: a row of the table to come, for each number of shots."""

    with_: str
    starts: tuple[
        str, ...
    ]  # labels of the starts it is tried from; the first is its own, the others are named in the table
    setting: str = ""  # told in the table beside the shots
    draws: int | None = None
    keep_source: float | None = None
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AdaptationGrid:
    """What a grid of adaptations says."""

    starts: Grid
    ways: tuple[AdaptationSpec, ...]
    shots: tuple[int, ...]
    draws: int
    results: Path
    paper: dict[str, dict[str, dict[str, float]]]  # method, setting, domain: in 0..1


@dataclass(frozen=True)
class Adapting:
    """One adaptation of one start, with one draw of shots."""

    start: Job
    way: AdaptationSpec
    plan: Plan
    seed: int

    @property
    def method(self) -> str:
        """Its name in the tables: a start that is simply tuned goes by its own."""
        return self.start.row.label if self.way.with_ == "fine_tune" else self.way.with_

    @property
    def setting(self) -> str:
        shots = "all" if self.plan.shots is None else f"{self.plan.shots}-shot"
        told = f"{shots}, {self.way.setting}" if self.way.setting else shots
        other = self.way.with_ != "fine_tune" and self.start.row.label != self.way.starts[0]
        return f"{told} from {self.start.row.label}" if other else told

    @property
    def label(self) -> str:
        return f"{self.start.identity['variant']} {self.method} {self.setting} seed {self.seed}"

    @property
    def told(self) -> dict[str, Any]:
        """What makes it this one."""
        return {
            "start": self.start.identity["run"],
            "domain": self.start.domains[0],
            "seed": self.seed,
            **self.plan.told(),
        }

    @property
    def path(self) -> Path:
        digest = hashlib.sha256(json.dumps(self.told, sort_keys=True).encode()).hexdigest()[:8]
        name = re.sub(
            r"[^A-Za-z0-9_.+=-]+", "-", f"{self.method}-{self.setting}-seed{self.seed}-{digest}"
        )
        return self.start.folder.parent / "adapted" / f"{name}.json"


def read_adaptation_grid(path: Path) -> AdaptationGrid:
    """A grid from its file; whatever is unknown or of the wrong kind is named before anything runs."""
    said = read_toml(path)
    if (
        not isinstance(said.get("start"), list)
        or not isinstance(said.get("row"), list)
        or not said["start"]
        or not said["row"]
    ):
        raise UnseenError(
            f"{path}: a grid of adaptations has its starts as [[start]] and the ways to adapt them as [[row]]"
        )
    if not isinstance(said.get("results", ""), str):
        raise UnseenError(f"{path}: results must be the name of a folder, not {said['results']!r}")
    results = Path(said.get("results", Path("results") / path.stem))
    training = {name: value for name, value in said.items() if name not in OWN}
    starts = grid_of(path, {**training, "row": said["start"], "results": str(results / "starts")})
    shots = said.get("shots", [7, 10])
    if not isinstance(shots, list) or not shots or len(set(map(str, shots))) < len(shots):
        raise UnseenError(f"{path}: shots must be a list of different numbers, not {shots!r}")
    labels = tuple(row.label for row in starts.rows)
    few_shot = AdaptationGrid(
        starts,
        tuple(
            _way(f"{path}, row {number}", entry, labels)
            for number, entry in enumerate(said["row"], start=1)
        ),
        tuple(check_int("shots", number, 1) for number in shots),
        check_int("draws", said.get("draws", 5), 1),
        results,
        _paper(path, said.get("paper", {})),
    )
    adaptings_of(few_shot)  # every row's settings are looked at before the first run starts
    return few_shot


def _way(where: str, entry: Any, starts: tuple[str, ...]) -> AdaptationSpec:
    known = {
        "with": str,
        "starts": list,
        "setting": str,
        "draws": int,
        "keep_source": int | float,
        "set": dict,
    }
    if (
        not isinstance(entry, dict)
        or set(entry) - set(known)
        or not isinstance(entry.get("with"), str)
    ):
        raise UnseenError(
            f"{where}: a row has `with`, and may have {', '.join(list(known)[1:])}; it is {entry!r}"
        )
    for name, value in entry.items():
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise UnseenError(f"{where}: {name} = {value!r} is not of the right kind")
    chosen = tuple(entry.pop("starts", starts))
    if not chosen or any(name not in starts or chosen.count(name) > 1 for name in chosen):
        raise UnseenError(
            f"{where}: starts must be some of {', '.join(starts)}, not {list(chosen)!r}"
        )
    if "draws" in entry:
        check_int(f"{where}: draws", entry["draws"], 1)
    return AdaptationSpec(entry.pop("with"), chosen, **entry)


def _paper(path: Path, said: Any) -> dict[str, dict[str, dict[str, float]]]:
    example = '[paper.fada] 7-shot = { "usps->mnist" = 0.915 }'
    try:
        figures = [
            value
            for settings in said.values()
            for domains in settings.values()
            for value in domains.values()
        ]
    except AttributeError:
        raise UnseenError(
            f"{path}: the paper's figures are by method, setting and domain, as {example}"
        ) from None
    if wrong := [
        v
        for v in figures
        if isinstance(v, bool) or not isinstance(v, int | float) or not 0 <= v <= 1
    ]:
        raise UnseenError(f"{path}: the paper's figures must lie in 0..1, not {wrong[0]!r}")
    return said


def adaptings_of(few_shot: AdaptationGrid) -> list[Adapting]:
    """Every adaptation of the grid, draw by draw, so that a grid that is stopped early has whole draws."""
    found = []
    for start in jobs_of(few_shot.starts):
        task = task_named(start.task)
        if len(task.targets) != 1:
            advice = "name a variant or a task function with one target, or use `unseen adapt --domain NAME`"
            raise UnseenError(
                f"{few_shot.starts.path}: {start.task} has {len(task.targets)} unseen domains, not one: {advice}"
            )
        net = method_named(start.row.method)(
            task.model(**start.identity["model"]), **start.identity["settings"]
        )
        for way in few_shot.ways:
            if start.row.label not in way.starts:
                continue
            try:
                from_labels = Plan.needs_labels(way.with_)
                given = few_shot.shots if from_labels else (None,)
                plans = [
                    Plan.of(net, way.with_, shots, way.set, way.keep_source) for shots in given
                ]
            except UnseenError as error:
                raise UnseenError(f"{few_shot.starts.path}, row {way.with_}: {error}") from error
            draws = way.draws or (few_shot.draws if from_labels else 1)
            found += [
                Adapting(start, way, plan, draw_seed(start.seed, draw))
                for plan in plans
                for draw in range(draws)
            ]
    names = [(adapting.label, adapting.start.identity["run"]) for adapting in found]
    if twice := next((label for label, start in names if names.count((label, start)) > 1), None):
        raise UnseenError(
            f"{few_shot.starts.path}: two rows are called {twice}: give one a setting = ..."
        )
    return sorted(
        found, key=lambda adapting: adapting.seed
    )  # stable: within a draw as the grid has them


def run_adaptation_grid(few_shot: AdaptationGrid, workers: int = 1, quiet: bool = False) -> dict[str, Any]:
    """Train the starts, adapt what is not yet adapted, then write the tables; says what failed."""
    check_int("workers", workers, 1)
    failed = dict(run_grid(few_shot.starts, workers, quiet)["failed"])
    wanted = adaptings_of(few_shot)
    for adapting in wanted:
        if adapting.path.exists() and _measured(adapting) is None:
            log.warning("%s is spoilt: it is made again", adapting.path)
            adapting.path.unlink()
    waiting = [
        adapting
        for adapting in wanted
        if not adapting.path.exists() and Run(adapting.start.folder).done
    ]
    if waiting:
        pool = ProcessPoolExecutor(
            workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin
        )
        try:
            doing = {
                pool.submit(_work, a.start.task, a.start.folder, a.plan, a.seed, a.told, a.path): a
                for a in waiting
            }
            for number, finished in enumerate(as_completed(doing), start=1):
                adapting = doing[finished]
                try:
                    said = finished.result()
                except BrokenProcessPool:
                    said = "its process was killed"
                if said:
                    failed[adapting.label] = said
                if not quiet:
                    told = said or f"{read_json(adapting.path)['target']:.3f}"
                    print(
                        f"{number}/{len(waiting)} {adapting.label}: {told}",
                        file=sys.stderr,
                        flush=True,
                    )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return {**write_tables(few_shot), "failed": failed}


def _begin() -> None:
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()
    threading.Thread(target=end_with_parent, daemon=True).start()


@lru_cache(maxsize=1)
def _ground(task: str) -> AdaptationData:
    return AdaptationData(task_named(task), None)


def _work(task: str, folder: Path, plan: Plan, seed: int, told: dict[str, Any], path: Path) -> str:
    """One adaptation, in a worker; what went wrong, if anything."""
    try:
        ground = _ground(task)
        net = Run(folder).load(ground.task, "cpu")
        began, used = time.monotonic(), time.process_time()
        drawn = one_draw(net, ground, plan, seed, progress=False)
        cost = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - used}
        target, source = (
            ground.worth(net, data, drawn.model)
            for data in (ground.test, ground.source_test)
        )
        write_json(
            path,
            {
                **told,
                "target": target,
                "source": source,
                "share": drawn.share,
                **cost,
                "commit": commit_here(),
            },
        )
    except UnseenError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def _measured(adapting: Adapting) -> dict[str, Any] | None:
    """What an adaptation came to, from its file; None if there is none, or if it is not of this adaptation."""
    try:
        found = read_json(adapting.path)
        told = {name: found[name] for name in adapting.told}
        figures = [float(found[name]) for name in ("target", "source", "share")]
        spent = [float(found[name]) for name in ("seconds", "cpu_seconds")]
    except (UnseenError, KeyError, TypeError, ValueError):
        return None
    sound = told == json.loads(json.dumps(adapting.told)) and all(
        0 <= value <= 1 for value in figures
    )
    return found if sound and all(map(math.isfinite, spent)) else None


def write_tables(few_shot: AdaptationGrid) -> dict[str, Any]:
    """Tables of what is finished: the starts as they are, under the setting 0-shot, and every adaptation."""
    wanted = adaptings_of(few_shot)
    cells = [
        {"variant": a.start.identity["variant"], "method": a.method, "setting": a.setting, "start": a.start.row.label,
         **found, "seed": a.seed}
        for a in wanted if (found := _measured(a)) is not None
    ]  # fmt: skip
    before = [
        cell
        for start in jobs_of(few_shot.starts)
        if Run(start.folder).done
        for cell in _before(start)
    ]
    tasks = [task_named(word) for word in few_shot.starts.tasks]
    facts = {
        "grid": str(few_shot.starts.path), "command": f"unseen adapt-grid {few_shot.starts.path}", "task": tasks[0].name,
        "metric": tasks[0].metric, "paper": few_shot.paper,
        "variants": {task.variant: {"source": task.source.name, "domain": task.targets[0].name} for task in tasks},
    }  # fmt: skip
    rows = write_adaptation_results(few_shot.results, facts, before + cells) if cells else []
    return {
        "results": str(few_shot.results),
        "adapted": len(cells),
        "wanted": len(wanted),
        "summary": rows,
        "failed": {},
    }


def _before(start: Job) -> list[dict[str, Any]]:
    """A start as it is, from its records; none if it is not examined yet."""
    task = task_named(start.task)
    found = {
        r["domain"]: r["value"]
        for r in Run(start.folder).records()
        if r["split"] == "test" and r["step"] == start.steps and r["metric"] == task.metric
    }
    if not {task.source.name, start.domains[0]} <= found.keys():
        return []
    return [{"variant": task.variant, "method": start.row.label, "setting": "0-shot", "start": start.row.label, "with": None,
             "seed": start.seed, "target": found[start.domains[0]], "source": found[task.source.name]}]  # fmt: skip
