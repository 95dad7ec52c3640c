"""The contents of a grid file: rows of methods and settings, seeds, variants; and their runs."""

from __future__ import annotations

import logging
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AllowInfNan, Field, Strict

from unseen.api import Task
from unseen.data.location import MissingData
from unseen.data.own_files.labels import SEPARATOR
from unseen.data.own_files.options import DataOptions
from unseen.errors import UnseenError
from unseen.experiments.published_runs import (
    Key,
    PublishedRun,
    describe_mismatches,
    find_mismatches,
    find_published,
    read_published_runs,
)
from unseen.methods import method_named
from unseen.schema import Section, merge, read_toml, validate
from unseen.tasks import task_named
from unseen.tasks.own_files import data_word
from unseen.training.batches import load_split
from unseen.training.config import resolve
from unseen.training.identity import TRAINED_ON, identity, trained_on
from unseen.training.preparation import adjust_to_steps, count_steps, find_layers

log = logging.getLogger("unseen")


# ---- schema of the file


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("a list of different values")
    return values


def _none_values(value: Any) -> Any:
    """TOML has no null: the text "none" stands for it, as on the command line."""
    if isinstance(value, Mapping):
        return {name: _none_values(item) for name, item in value.items()}
    return None if value == "none" else value


Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Strict(), Field(ge=1)]
Fraction = Annotated[float, Strict(), AllowInfNan(False), Field(ge=0, le=1)]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**31)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(distinct)]
SettingsTable = Annotated[dict[str, Any], AfterValidator(_none_values)]


class Row(Section):
    """A line of the table: a method under the name of a setting."""

    method: Name
    setting: Name = "default"
    set: SettingsTable = Field(default_factory=dict)
    paper: dict[str, Fraction] = Field(default_factory=dict)  # published figures by domain, in 0..1

    @property
    def label(self) -> str:
        return self.method if self.setting == "default" else f"{self.method}, {self.setting}"


class GridData(Section):
    """One's own data and network, as the options of `unseen train --data`."""

    path: Name
    source: Name | None = None
    resize: Name | None = None
    labels: Name | None = None
    separator: Name = SEPARATOR
    seconds: float | None = None
    split_seed: Annotated[int, Strict(), Field(ge=0)] = 0
    allow_duplicates: bool = False
    model: Name | None = None
    sites: Name | None = None
    embedding: Name | None = None

    def word(self) -> str:
        """Return the word of the task."""
        values = self.model_dump()
        network = {name: values.pop(name) for name in ("model", "sites", "embedding")}
        return data_word(DataOptions(**values), **network)


class GridSettings(Section):
    """What grids of runs and grids of adaptations have in common."""

    task: Name | None = None
    variants: Annotated[tuple[Name, ...], AfterValidator(distinct)] = ()
    preset: Name = "fast"
    seeds: Seeds = (0, 1, 2)
    runs: Name | None = None
    results: Name | None = None
    set: SettingsTable = Field(default_factory=dict)
    samples: Count | None = None
    averages: dict[str, Annotated[list[Name], Field(min_length=1)]] = Field(default_factory=dict)
    data: Name | GridData | None = None  # manifest or folder of one's own, instead of a task


class GridFile(GridSettings):
    """The file of `unseen bench`."""

    row: Annotated[tuple[Row, ...], Field(min_length=1)]


class _SeedOption(Section):
    seeds: Seeds


# ---- grids and their runs


@dataclass(frozen=True)
class Grid:
    """A grid of runs."""

    path: Path
    task: str
    rows: tuple[Row, ...]
    variants: tuple[str, ...] = ()  # of the task; none is its default alone
    preset: str = "fast"
    seeds: tuple[int, ...] = (0, 1, 2)
    runs: Path = Path("runs")
    results: Path = Path("results")
    set: dict[str, Any] = field(default_factory=dict)  # for every run; a row's own settings win
    samples: int | None = None  # evaluated per domain at most; None is all
    averages: dict[str, list[str]] = field(default_factory=dict)  # over domains or patterns
    published: tuple[Path, ...] = ()  # folders of results whose runs count as finished
    data_here: dict[str, dict[str, Any]] = field(default_factory=dict)  # size of the data, by task
    command: str = ""

    @property
    def tasks(self) -> list[str]:
        """The task in each variant, as named on the command line."""
        return [f"{self.task}/{variant}" for variant in self.variants] or [self.task]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid."""

    task: str
    row: Row
    seed: int
    folder: Path
    identity: dict[str, Any]  # what its config.json must contain
    domains: tuple[str, ...]
    warnings: tuple[str, ...] = ()  # of its method, about these settings
    published: dict[str, Any] | None = None  # results of the same run, published earlier

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


def read_grid(path: Path) -> Grid:
    """Read a grid file and check every row's settings."""
    content = validate(GridFile, read_toml(path), str(path))
    return make_grid(path, content, content.row, f"unseen bench {shlex.quote(str(path))}")


def make_grid(path: Path, content: GridSettings, rows: Sequence[Row], command: str) -> Grid:
    """Return the grid of a file's contents."""
    names = Counter((row.method, row.setting) for row in rows)
    if duplicates := [f"{method} {setting}" for (method, setting), n in names.items() if n > 1]:
        raise UnseenError(
            f"{path}: two rows are called {', '.join(duplicates)}: give one a setting = ..."
        )
    if "average" in content.averages:
        raise UnseenError(f'{path}: "average" is over all domains: choose another name')
    grid = Grid(
        path=path,
        task=_task_word(path, content),
        rows=tuple(rows),
        variants=content.variants,
        preset=content.preset,
        seeds=content.seeds,
        runs=Path(content.runs or Path("runs") / path.stem),
        results=Path(content.results or Path("results") / path.stem),
        set=content.set,
        samples=content.samples,
        averages=content.averages,
        command=command,
    )
    plan_runs(grid)  # checks the settings of every row
    return grid


def _task_word(path: Path, content: GridSettings) -> str:
    if content.task is None and content.data is None:
        raise UnseenError(f"{path}: task is missing: name one, or your own data with data = ...")
    if content.task is not None and content.data is not None:
        raise UnseenError(f"{path}: give either task or data, not both")
    if content.data is None:
        return str(content.task)
    if content.variants:
        raise UnseenError(f"{path}: data has no variants")
    data = GridData(path=content.data) if isinstance(content.data, str) else content.data
    return data.word()


def with_seeds(grid: Grid, seeds: Sequence[int]) -> Grid:
    """Return the grid with other seeds."""
    chosen = validate(_SeedOption, {"seeds": list(seeds)}, "--seeds").seeds
    command = f"{grid.command} --seeds {' '.join(map(str, chosen))}"
    return replace(grid, seeds=chosen, command=command)


def with_published(grid: Grid, folders: Sequence[Path]) -> Grid:
    """Return the grid with runs of these results as finished, where configurations are equal."""
    published = _read_all(folders)
    if silent := sum(TRAINED_ON not in run.config for run in published):
        log.warning(
            "%d published runs do not record the size of their training data; "
            "they count as if it were the same",
            silent,
        )
    compare_data = silent < len(published)
    grid = replace(
        grid,
        published=tuple(folders),
        data_here={w: _data_here(task_named(w)) for w in grid.tasks} if compare_data else {},
        command=f"{grid.command} --published {shlex.join(map(str, folders))}",
    )
    mismatches = [
        mismatch
        for run in plan_runs(grid)
        if run.published is None
        for mismatch in find_mismatches(
            published, run.key, run.identity, run.domains, task_named(run.task).metric, grid.samples
        )
    ]
    for message in describe_mismatches(mismatches):
        log.warning(message)
    return grid


def _read_all(folders: Sequence[Path]) -> list[PublishedRun]:
    return [run for folder in folders for run in read_published_runs(folder)]


def _data_here(task: Task) -> dict[str, Any]:
    """Return the size of the training data, to compare with published runs; {} without data."""
    try:
        splits = [load_split(task.source, split) for split in ("train", "val")]
    except MissingData as error:
        log.warning("published runs count without a check of their training data: %s", error)
        return {}
    return {TRAINED_ON: trained_on(task, *splits)}


def plan_runs(grid: Grid) -> list[PlannedRun]:
    """Return all runs, seed by seed: a grid that is stopped early has complete seeds."""
    published = _read_all(grid.published)
    planned = []
    for word in grid.tasks:
        task = task_named(word)
        domains = labelled_targets(task)
        folder = grid.runs / word.partition("/")[2]
        if not domains:
            raise UnseenError(
                f"{grid.path}: the data have no labelled domain beside the source to test on: give "
                "folders DOMAIN/CLASS/FILE or a manifest with the columns domain and label"
            )
        for name, row in _folder_names(grid).items():
            try:
                method = method_named(row.method)
                chosen = resolve(task, method, grid.preset, merge(grid.set, row.set), "set")
                chosen = chosen._replace(loop=count_steps(task, chosen.loop))
                net = method(task.model(**chosen.model), **chosen.method)
                with suppress(MissingData):  # published runs need no data
                    find_layers(net, task)
                adjust_to_steps(net, task, chosen.loop)
            except UnseenError as error:
                raise UnseenError(f"{grid.path}, row {row.label}: {error}") from error
            warnings = tuple(net.warnings(chosen.loop.steps))
            for seed in grid.seeds:
                config = {
                    **identity(task, net, grid.preset, chosen, seed),
                    **task.record,
                    **grid.data_here.get(word, {}),
                }
                earlier = find_published(
                    published, config, domains, task.source.name, task.metric, grid.samples
                )
                at = folder / f"{name}-seed{seed}"
                planned.append(PlannedRun(word, row, seed, at, config, domains, warnings, earlier))
    return sorted(planned, key=lambda run: grid.seeds.index(run.seed))  # keeps the order of rows


def labelled_targets(task: Task) -> tuple[str, ...]:
    """Return the unseen domains that a metric can be computed on."""
    unlabelled = task.record.get("data", {}).get("unlabelled", ())
    return tuple(d.name for d in task.targets if d.name not in unlabelled)


def _folder_names(grid: Grid) -> dict[str, Row]:
    names: dict[str, Row] = {}
    for row in grid.rows:
        name = re.sub(r"[^A-Za-z0-9_.+=-]+", "-", f"{row.method}-{row.setting}")
        if name in names:
            raise UnseenError(
                f"{grid.path}: {row.label} and {names[name].label} would share the folder {name}: "
                "rename one"
            )
        names[name] = row
    return names
