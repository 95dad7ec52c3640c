"""Tables of published results from results/*/summary.json, for the README and the site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unseen.reading import read_json_value
from unseen.report.tables.text import markdown, percent_with_std
from unseen.schema import validate
from unseen.schema.results import RunsPage, SummaryFile

ERM, OURS = "erm", "uncertainty_guided"
MODEL_METRICS = ("accuracy", "miou", "map")  # summaries also have metrics of scores and of costs
MAX_COLUMNS = 7  # a task with more domains shows averages only
NO_RESULTS = "No published results for this {kind} yet: nothing under `results/` has it."


@dataclass(frozen=True)
class PublishedRow:
    """A method with one setting in one grid: mean and std over seeds, by domain and average."""

    grid: str
    task: str
    variant: str
    method: str
    setting: str
    metric: str
    values: dict[str, tuple[float, float]]
    seeds: tuple[int, ...]
    averages: tuple[str, ...]  # names in `values` that are averages over domains

    @property
    def name(self) -> str:
        return self.method if self.setting == "default" else f"{self.method}, {self.setting}"

    @property
    def task_title(self) -> str:
        return self.task if self.variant == "default" else f"{self.task}/{self.variant}"

    def mean(self, name: str = "average") -> float:
        return self.values[name][0]

    def cell(self, name: str = "average") -> str:
        return percent_with_std(*self.values[name], len(self.seeds))


def read_published(folder: Path) -> list[PublishedRow]:
    """Read the metrics of models, at their last checkpoint, of every grid below the folder."""
    published: list[PublishedRow] = []
    for path in sorted(folder.glob("*/summary.json")):
        averages = ("average", *_named_averages(path.with_name("runs.json")))
        for key, rows in _read_summary(path).items():
            values = {row["domain"]: (row["mean"], row["std"]) for row in rows}
            if "average" in values:
                seeds = tuple(rows[0]["seeds"])
                names = tuple(name for name in averages if name in values)
                published.append(PublishedRow(path.parent.name, *key, values, seeds, names))
    return published


def _read_summary(path: Path) -> dict[tuple[str, str, str, str, str], list[dict]]:
    """Return the rows by task, variant, method, setting and metric."""
    groups: dict[tuple[str, str, str, str, str], list[dict]] = {}
    content = read_json_value(path)
    where = f"{path} is not a summary of results"
    for row in validate(SummaryFile, {"rows": content}, where).rows:
        if row.selection == "last" and row.metric in MODEL_METRICS:
            names = (row.task, row.variant, row.method, row.setting, row.metric)
            groups.setdefault(names, []).append(row.model_dump())
    return groups


def _named_averages(path: Path) -> list[str]:
    if not path.exists():
        return []
    return list(validate(RunsPage, read_json_value(path), str(path)).averages)


def find_erm(published: Sequence[PublishedRow], row: PublishedRow) -> PublishedRow | None:
    """Return ERM of the same grid and variant, with the same setting or else the default one."""
    place = (row.grid, row.task_title, ERM)
    rows = {x.setting: x for x in published if (x.grid, x.task_title, x.method) == place}
    return rows.get(row.setting, rows.get("default"))


def task_table(published: Sequence[PublishedRow], task: str) -> str:
    """Return a task's results as Markdown, a table for each grid and variant."""
    own = [row for row in published if row.task == task]
    if not own:
        return NO_RESULTS.format(kind="task")
    parts = []
    for grid, title in dict.fromkeys((row.grid, row.task_title) for row in own):
        rows = [row for row in own if (row.grid, row.task_title) == (grid, title)]
        domains = [name for name in rows[0].values if name not in rows[0].averages]
        columns = [*(domains if len(domains) <= MAX_COLUMNS else ()), *rows[0].averages]
        columns = [name for name in columns if all(name in row.values for row in rows)]
        headings = ["average, unseen" if name == "average" else name for name in columns]
        body = [[row.name, *(row.cell(name) for name in columns), len(row.seeds)] for row in rows]
        caption = f"{title}, {rows[0].metric} in %, unseen domains; from `results/{grid}/`:"
        parts.append(f"{caption}\n\n{markdown(['', *headings, 'seeds'], body)}")
    return "\n\n".join(parts)


def method_table(
    published: Sequence[PublishedRow], method: str, link: Callable[[str], str] = str
) -> str:
    """Return a method's results as Markdown beside ERM; `link` formats the name of a task."""
    own = [row for row in published if row.method == method]
    if not own:
        return NO_RESULTS.format(kind="method")
    default = [row for row in own if row.setting == "default"]
    others = [row for row in own if row.setting != "default"]
    parts = [_beside_erm(published, default, link)] if default else []
    if others:
        parts += ["Other settings, named as in the grids:", _beside_erm(published, others, link)]
    return "\n\n".join(parts)


def _beside_erm(
    published: Sequence[PublishedRow], rows: Sequence[PublishedRow], link: Callable[[str], str]
) -> str:
    settings = any(row.setting != "default" for row in rows)
    compared = rows[0].method != ERM
    header = [
        "task",
        *(["setting"] if settings else []),
        "average, unseen, %",
        *([f"{ERM}, same grid"] if compared else []),
        "seeds",
        "from results/",
    ]
    body = []
    for row in rows:
        name = link(row.task) + row.task_title.removeprefix(row.task)
        erm = find_erm(published, row)
        reference = [erm.cell() if erm else "-"] if compared else []
        setting = [row.setting] if settings else []
        body.append([name, *setting, row.cell(), *reference, len(row.seeds), row.grid])
    table = markdown(header, body)
    # Names of settings are text: left-aligned.
    return table.replace("| --- | ---: |", "| --- | --- |", 1) if settings else table
