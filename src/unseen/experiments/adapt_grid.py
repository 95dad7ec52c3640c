"""The contents of an adaptation grid file: starting points, adaptations, shots and draws."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AllowInfNan, Field, Strict, create_model

from unseen.errors import UnseenError
from unseen.experiments.adapt import Plan, draw_seed
from unseen.experiments.grid import (
    Count,
    Fraction,
    Grid,
    GridSettings,
    Name,
    PlannedRun,
    Row,
    SettingsTable,
    distinct,
    make_grid,
    plan_runs,
)
from unseen.methods import method_named
from unseen.schema import Section, construct_settings, read_toml, validate
from unseen.tasks import task_named

PaperFigures = dict[str, dict[str, dict[str, Fraction]]]  # by method, setting and domain


class _AdaptationRow(Section):
    starts: list[str] | None = None
    setting: str = ""
    draws: Count | None = None
    keep_source: Annotated[float, Strict(), AllowInfNan(False)] | None = None
    set: SettingsTable = Field(default_factory=dict)


_WITH: dict[str, Any] = {"with": (Name, ...)}  # a keyword of Python
AdaptationRow: Any = create_model("AdaptationRow", __base__=_AdaptationRow, **_WITH)


class AdaptationGridFile(GridSettings):
    """The file of `unseen adapt-grid`."""

    start: Annotated[tuple[Row, ...], Field(min_length=1)]
    row: Annotated[tuple[AdaptationRow, ...], Field(min_length=1)]
    shots: Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(distinct)] = (7, 10)
    draws: Count = 5
    paper: PaperFigures = Field(default_factory=dict)


@dataclass(frozen=True)
class AdaptationSpec:
    """An adaptation method with its settings: one row of the table for each number of shots."""

    with_: str
    starts: tuple[str, ...]  # labels of the starting points; a start other than the first is named
    setting: str = ""  # shown in the table, after the shots
    draws: int | None = None
    keep_source: float | None = None
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AdaptationGrid:
    """An adaptation grid file."""

    starts: Grid
    rows: tuple[AdaptationSpec, ...]
    shots: tuple[int, ...]
    draws: int
    results: Path
    paper: PaperFigures


@dataclass(frozen=True)
class PlannedAdaptation:
    """One adaptation of one starting point, with one draw of shots."""

    start: PlannedRun
    spec: AdaptationSpec
    plan: Plan
    seed: int

    @property
    def method(self) -> str:
        """Name in the tables; a fine-tuned start keeps its own name."""
        return self.start.row.label if self.spec.with_ == "fine_tune" else self.spec.with_

    @property
    def setting(self) -> str:
        shots = "all" if self.plan.shots is None else f"{self.plan.shots}-shot"
        name = f"{shots}, {self.spec.setting}" if self.spec.setting else shots
        start = self.start.row.label
        other_start = self.spec.with_ != "fine_tune" and start != self.spec.starts[0]
        return f"{name} from {start}" if other_start else name

    @property
    def label(self) -> str:
        return f"{self.start.identity['variant']} {self.method} {self.setting} seed {self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the result."""
        return {
            "start": self.start.identity["run"],
            "domain": self.start.domains[0],
            "seed": self.seed,
            **self.plan.to_config(),
        }

    @property
    def path(self) -> Path:
        identity = json.dumps(self.identity, sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
        name = f"{self.method}-{self.setting}-seed{self.seed}-{digest}"
        name = re.sub(r"[^A-Za-z0-9_.+=-]+", "-", name)
        return self.start.folder.parent / "adapted" / f"{name}.json"


def read_adaptation_grid(path: Path) -> AdaptationGrid:
    """Read an adaptation grid file and check the settings of every row."""
    content = validate(AdaptationGridFile, read_toml(path), str(path))
    results = Path(content.results or Path("results") / path.stem)
    starts = content.model_copy(update={"results": str(results / "starts")})
    command = f"unseen adapt-grid {shlex.quote(str(path))}"
    grid = make_grid(path, starts, content.start, command)
    labels = tuple(row.label for row in grid.rows)
    rows = tuple(
        _spec(f"{path}, row {number}", row, labels) for number, row in enumerate(content.row, 1)
    )
    adaptations = AdaptationGrid(grid, rows, content.shots, content.draws, results, content.paper)
    plan_adaptations(adaptations)  # checks the settings of every row
    return adaptations


def _spec(where: str, row: Any, labels: tuple[str, ...]) -> AdaptationSpec:
    starts = labels if row.starts is None else tuple(row.starts)
    if not starts or not set(starts) <= set(labels) or len(set(starts)) < len(starts):
        raise UnseenError(
            f"{where}: starts must be some of {', '.join(labels)}, not {list(starts)!r}"
        )
    with_ = getattr(row, "with")
    return AdaptationSpec(with_, starts, row.setting, row.draws, row.keep_source, row.set)


def plan_adaptations(grid: AdaptationGrid) -> list[PlannedAdaptation]:
    """Return all adaptations, draw by draw: a grid that is stopped early has complete draws."""
    path = grid.starts.path
    planned: list[PlannedAdaptation] = []
    for start in plan_runs(grid.starts):
        task = task_named(start.task)
        if len(task.targets) != 1:
            raise UnseenError(
                f"{path}: {start.task} has {len(task.targets)} unseen domains, not one: name a "
                "variant or a task function with one target, or use `unseen adapt --domain NAME`"
            )
        model = task.model(**start.identity["model"])
        method = method_named(start.row.method)
        settings = construct_settings(
            method.settings_of(), start.identity["settings"], start.label, method.name
        )
        net = method(model, **settings)
        for spec in grid.rows:
            if start.row.label not in spec.starts:
                continue
            try:
                needs_labels = Plan.needs_labels(spec.with_)
                plans = [
                    Plan.of(net, spec.with_, shots, spec.set, spec.keep_source)
                    for shots in (grid.shots if needs_labels else (None,))
                ]
            except UnseenError as error:
                raise UnseenError(f"{path}, row {spec.with_}: {error}") from error
            draws = spec.draws or (grid.draws if needs_labels else 1)
            planned += [
                PlannedAdaptation(start, spec, plan, draw_seed(start.seed, draw))
                for plan in plans
                for draw in range(draws)
            ]
    names = Counter((adaptation.label, adaptation.start.identity["run"]) for adaptation in planned)
    if duplicate := next((label for (label, _), n in names.items() if n > 1), None):
        raise UnseenError(f"{path}: two rows are called {duplicate}: give one a setting = ...")
    return sorted(planned, key=lambda adaptation: adaptation.seed)  # keeps the order in a draw
