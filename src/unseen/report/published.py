"""Our published numbers, from results/*/summary.json alone: what the README, the cards and the site show of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unseen.errors import UnseenError
from unseen.report.tables import markdown, percent

PLAIN, OURS = "erm", "uncertainty_guided"
MODEL_METRICS = (
    "accuracy",
    "miou",
)  # of a model; what else a summary holds, of scores or of costs, is not of a kind
WIDE = 7  # domains in a row; a task with more shows its averages
NEEDED = (
    "task",
    "variant",
    "method",
    "setting",
    "domain",
    "metric",
    "selection",
    "mean",
    "std",
    "seeds",
)
NO_NUMBERS = "There are no numbers of ours for this {kind} yet: nothing under `results/` is of it."


@dataclass(frozen=True)
class Line:
    """A method under one setting in one grid of results: mean and spread over seeds, by domain and by average."""

    grid: str
    task: str
    variant: str
    method: str
    setting: str
    metric: str
    figures: dict[str, tuple[float, float]]
    seeds: tuple[int, ...]
    averages: tuple[str, ...]  # which of the figures are averages over domains

    @property
    def name(self) -> str:
        return self.method if self.setting == "default" else f"{self.method}, {self.setting}"

    @property
    def where(self) -> str:
        return self.task if self.variant == "default" else f"{self.task}/{self.variant}"

    def value(self, figure: str = "average") -> float:
        return self.figures[figure][0]

    def cell(self, figure: str = "average") -> str:
        mean, std = self.figures[figure]
        return percent(mean) + (f" ± {percent(std)}" if len(self.seeds) > 1 else "")


def read_published(folder: Path) -> list[Line]:
    """Every line of every grid under the folder that says what models are worth, with their last checkpoint."""
    lines: list[Line] = []
    for path in sorted(folder.glob("*/summary.json")):
        try:
            rows = json.loads(path.read_text())
            groups: dict[tuple[str, ...], list[dict]] = {}
            for row in (
                row for row in rows if row["selection"] == "last" and row["metric"] in MODEL_METRICS
            ):
                key = tuple(
                    row[name] for name in ("task", "variant", "method", "setting", "metric")
                )
                groups.setdefault(key, []).append({name: row[name] for name in NEEDED})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnseenError(
                f"{path} is not a summary of results, a list of rows with {', '.join(NEEDED)}: {error}"
            ) from error
        averages = ("average", *_named_averages(path.with_name("runs.json")))
        for (task, variant, method, setting, metric), rows in groups.items():
            figures = {row["domain"]: (row["mean"], row["std"]) for row in rows}
            if "average" in figures:
                told = (
                    path.parent.name,
                    task,
                    variant,
                    method,
                    setting,
                    metric,
                    figures,
                    tuple(rows[0]["seeds"]),
                )
                lines.append(
                    Line(*told, averages=tuple(name for name in averages if name in figures))
                )
    return lines


def _named_averages(path: Path) -> list[str]:
    try:
        return list(json.loads(path.read_text()).get("averages", {}))
    except (OSError, ValueError, AttributeError):
        return []


def plain_of(lines: Sequence[Line], line: Line) -> Line | None:
    """Plain training beside a line: of the same grid and variant, under the same setting or, where there is none, by default."""
    beside = {
        x.setting: x for x in lines if (x.grid, x.where, x.method) == (line.grid, line.where, PLAIN)
    }
    return beside.get(line.setting, beside.get("default"))


def task_table(lines: Sequence[Line], task: str) -> str:
    """A task's numbers as Markdown: a table for each grid and variant."""
    own = [line for line in lines if line.task == task]
    if not own:
        return NO_NUMBERS.format(kind="task")
    told = []
    for grid, where in dict.fromkeys((line.grid, line.where) for line in own):
        rows = [line for line in own if (line.grid, line.where) == (grid, where)]
        domains = [name for name in rows[0].figures if name not in rows[0].averages]
        shown = [*(domains if len(domains) <= WIDE else ()), *rows[0].averages]
        shown = [name for name in shown if all(name in line.figures for line in rows)]
        body = [[line.name, *(line.cell(name) for name in shown), len(line.seeds)] for line in rows]
        title = f"{where}, {rows[0].metric} in %, unseen domains; from `results/{grid}/`:"
        told.append(f"{title}\n\n{markdown(['', *_headings(shown), 'seeds'], body)}")
    return "\n\n".join(told)


def _headings(shown: Sequence[str]) -> list[str]:
    return ["average, unseen" if name == "average" else name for name in shown]


def method_table(lines: Sequence[Line], method: str, link: Callable[[str], str] = str) -> str:
    """A method's numbers as Markdown: as it is by default, then under other settings; `link` writes a task's name."""
    own = [line for line in lines if line.method == method]
    if not own:
        return NO_NUMBERS.format(kind="method")
    by_default, others = (
        [line for line in own if (line.setting == "default") is wanted] for wanted in (True, False)
    )
    told = [_beside_plain(lines, by_default, link)] if by_default else []
    if others:
        told.append("Under other settings, as the grids name them:")
        told.append(_beside_plain(lines, others, link))
    return "\n\n".join(told)


def _beside_plain(lines: Sequence[Line], chosen: Sequence[Line], link: Callable[[str], str]) -> str:
    settings = any(line.setting != "default" for line in chosen)
    compared = chosen[0].method != PLAIN
    header = ["task", *(["setting"] if settings else []), "average, unseen, %", *([f"{PLAIN}, same grid"] if compared else []),
              "seeds", "from results/"]  # fmt: skip
    body = []
    for line in chosen:
        name = link(line.task) + line.where.removeprefix(line.task)
        plain = plain_of(lines, line)
        beside = [plain.cell() if plain else "-"] if compared else []
        setting = [line.setting] if settings else []
        body.append([name, *setting, line.cell(), *beside, len(line.seeds), line.grid])
    table = markdown(header, body)
    return (
        table.replace("| --- | ---: |", "| --- | --- |", 1) if settings else table
    )  # words to the left
