"""What a grid file says: rows of methods and settings, seeds, variants, and the runs that this makes."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from unseen.api import Task
from unseen.checks import check_int
from unseen.data.location import MissingData
from unseen.errors import UnseenError
from unseen.experiments.published_runs import Key, earlier_run, published_runs, remarks_on, why_not
from unseen.methods import method_named
from unseen.schema import merge
from unseen.tasks import task_named
from unseen.training.batches import load_split
from unseen.training.config import resolve
from unseen.training.identity import TRAINED_ON, check_seed, identity, trained_on

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found, no-redef]

log = logging.getLogger("unseen")


@dataclass(frozen=True)
class Row:
    """One line of the table to come: a method under a setting's name."""

    method: str
    setting: str = "default"
    set: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, float] = field(
        default_factory=dict
    )  # what the paper reports, by domain, in 0..1

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
    averages: dict[str, list[str]] = field(
        default_factory=dict
    )  # further averages over some domains: names or patterns
    published: tuple[Path, ...] = ()  # folders of results whose runs count as finished
    data_here: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # by task: what published runs are compared with
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
    earlier: dict[str, Any] | None = None  # what published results say of this very run
    state: str = "waiting"  # running, done, failed
    said: str = ""
    process: BaseProcess | None = None

    @property
    def label(self) -> str:
        variant = self.task.partition("/")[2]
        return f"{variant} {self.row.label} seed {self.seed}".strip()

    @property
    def key(self) -> Key:
        return (self.identity["variant"], self.row.method, self.row.setting, self.seed)

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
    known = {
        "task",
        "variants",
        "preset",
        "seeds",
        "runs",
        "results",
        "samples",
        "set",
        "averages",
        "row",
    }
    if unknown := set(said) - known:
        raise UnseenError(
            f"{path}: unknown {', '.join(sorted(unknown))}; a grid has: {', '.join(sorted(known))}"
        )
    for name, kind in (("task", str), ("row", list)):
        if not isinstance(said.get(name), kind) or not said[name]:
            raise UnseenError(
                f'{path}: "{name}" is missing: a grid names a task, and its rows as [[row]] with a method each'
            )
    rows = tuple(_row(path, number, entry) for number, entry in enumerate(said.pop("row"), start=1))
    names = [(row.method, row.setting) for row in rows]
    if twice := {f"{m} {s}" for m, s in names if names.count((m, s)) > 1}:
        raise UnseenError(
            f"{path}: two rows are called {', '.join(twice)}: give one a setting = ..."
        )
    for name in ("preset", "runs", "results"):
        if not isinstance(said.get(name, ""), str):
            raise UnseenError(f"{path}: {name} must be a name, not {said[name]!r}")
    for name in ("runs", "results"):
        said[name] = Path(said.get(name, Path(name) / path.stem))
    if "samples" in said:
        said["samples"] = check_int(f"{path}: samples", said["samples"], 1)
    said["set"] = _settings(said.get("set", {}), f"{path}: set")
    for name, domains in _table(said.get("averages", {}), f"{path}: averages").items():
        if not _names(domains) or not domains or name == "average":
            raise UnseenError(
                f"{path}: an average has a name of its own and a list of domains, not {name} = {domains!r}"
            )
    if not _names(said.setdefault("variants", [])) or len(set(said["variants"])) < len(
        said["variants"]
    ):
        raise UnseenError(
            f"{path}: variants must be a list of different names, not {said['variants']!r}"
        )
    said["variants"] = tuple(said["variants"])
    seeds = said.pop("seeds", [0, 1, 2])
    grid = with_seeds(Grid(path, rows=rows, **said), seeds)
    jobs_of(grid)  # every row's settings are looked at before the first run starts
    return replace(grid, command=f"unseen bench {shlex.quote(str(path))}")


def with_seeds(grid: Grid, seeds: Sequence[int]) -> Grid:
    """The grid with these seeds."""
    if (
        not isinstance(seeds, list | tuple)
        or not seeds
        or not all(isinstance(s, int) for s in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        raise UnseenError(
            f"{grid.path}: seeds must be a list of different whole numbers, not {seeds!r}"
        )
    told = f"{grid.command} --seeds {' '.join(map(str, seeds))}"
    return replace(
        grid, seeds=tuple(check_seed(check_int("seed", seed, 0)) for seed in seeds), command=told
    )


def with_published(grid: Grid, folders: Sequence[Path]) -> Grid:
    """The grid, where runs of these results count as finished if they are the very runs it asks for."""
    published = [run for folder in folders for run in published_runs(folder)]
    if silent := sum(TRAINED_ON not in run.config for run in published):
        log.warning(
            "%d published runs do not say how much data they learned from, and count as if it were this one's",
            silent,
        )
    told = any(TRAINED_ON in run.config for run in published)
    data_here = {word: _data_here(task_named(word)) for word in grid.tasks} if told else {}
    command = f"{grid.command} --published {shlex.join(map(str, folders))}"
    wanted = replace(grid, published=tuple(folders), data_here=data_here, command=command)
    left_out = [
        found
        for job in jobs_of(wanted)
        if job.earlier is None
        for found in why_not(
            published, job.key, job.identity, job.domains, task_named(job.task).metric, grid.samples
        )
    ]
    for remark in remarks_on(left_out):
        log.warning(remark)
    return wanted


def _row(path: Path, number: int, entry: Any) -> Row:
    known = {"method", "setting", "set", "paper"}
    if (
        not isinstance(entry, dict)
        or set(entry) - known
        or not isinstance(entry.get("method"), str)
    ):
        raise UnseenError(
            f"{path}, row {number}: a row has method, and may have setting, set and paper; it is {entry!r}"
        )
    if not isinstance(entry.get("setting", ""), str):
        raise UnseenError(f"{path}, row {number}: setting must be a name, not {entry['setting']!r}")
    for domain, value in _table(entry.get("paper", {}), f"{path}, row {number}: paper").items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UnseenError(
                f"{path}, row {number}: the paper's figure of {domain} must lie in 0..1, not {value!r}"
            )
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


def _data_here(task: Task) -> dict[str, Any]:
    """How much there is to learn from here, beside what published runs say of theirs; nothing where the data is elsewhere."""
    try:
        return {
            TRAINED_ON: trained_on(
                task, *(load_split(task.source, split) for split in ("train", "val"))
            )
        }
    except MissingData as error:
        log.warning("published runs count without a look at the data they learned from: %s", error)
        return {}


def jobs_of(grid: Grid) -> list[Job]:
    """Every run of the grid, seed by seed, so that a grid that is stopped early has whole seeds."""
    folders: dict[str, Row] = {}
    for row in grid.rows:
        name = re.sub(r"[^A-Za-z0-9_.+=-]+", "-", f"{row.method}-{row.setting}")
        if name in folders:
            raise UnseenError(
                f"{grid.path}: {row.label} and {folders[name].label} would share the folder {name}: rename one"
            )
        folders[name] = row
    jobs = []
    published = [run for folder in grid.published for run in published_runs(folder)]
    for word in grid.tasks:
        task = task_named(word)
        folder, domains = grid.runs / word.partition("/")[2], tuple(d.name for d in task.targets)
        for name, row in folders.items():
            try:
                chosen = resolve(
                    task, method_named(row.method), grid.preset, merge(grid.set, row.set), "set"
                )
                net = method_named(row.method)(task.model(**chosen.model), **chosen.method)
            except UnseenError as error:
                raise UnseenError(f"{grid.path}, row {row.label}: {error}") from error
            remarks = tuple(net.warnings(chosen.loop.steps))
            for seed in grid.seeds:
                told = {
                    **identity(task, net, grid.preset, chosen, seed),
                    **grid.data_here.get(word, {}),
                }
                earlier = earlier_run(
                    published, told, domains, task.source.name, task.metric, grid.samples
                )
                jobs.append(
                    Job(
                        word,
                        row,
                        seed,
                        folder / f"{name}-seed{seed}",
                        told,
                        domains,
                        remarks,
                        earlier,
                    )
                )
    return sorted(
        jobs, key=lambda job: grid.seeds.index(job.seed)
    )  # stable: within a seed as the grid has them
