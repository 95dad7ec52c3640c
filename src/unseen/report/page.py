"""The report page and its tables as Markdown and CSV. The same input gives the same bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.report.figures.ablations import ablation_figure, sweep_figures
from unseen.report.figures.confusion import confusion_figure
from unseen.report.figures.domains import metric_by_domain
from unseen.report.figures.features import MISSING, has_tsne, mixed_label_figure, tsne_figure
from unseen.report.figures.images import example_figure, scene_figure
from unseen.report.figures.noise_maps import noise_map_figure
from unseen.report.figures.reliability import reliability_figure
from unseen.report.figures.scores import comparison_figure, domain_score_figure
from unseen.report.figures.severity import severity_figures
from unseen.report.figures.svg import SERIES, SYMBOLS, Figure, unique_ids
from unseen.report.figures.training import learned_noise, metric_over_training, transport
from unseen.report.groups import OURS, TaskRuns, group_by_task
from unseen.report.paper import CITATION
from unseen.report.runs import ReportInputs, read_folders
from unseen.report.severities import MAX_DOMAINS
from unseen.report.tables.adaptation import adaptation_tables
from unseen.report.tables.runs import (
    ablation_table,
    command_of,
    domain_score_table,
    overview_table,
    results_tables,
    runs_table,
)
from unseen.report.tables.scores import score_tables
from unseen.report.tables.table import Measurement, Table, slug
from unseen.report.tables.task_verdicts import verdict_table

MAX_BYTES = 5_000_000
Block = Table | Figure
PAGE, TABLES = "report.html", "tables.md"
ALL_RUNS = "All runs"
TASK_BLOCKS: tuple[Callable[[TaskRuns], Block | Sequence[Block] | None], ...] = (
    results_tables, severity_figures, metric_by_domain, domain_score_figure, domain_score_table,
    example_figure, scene_figure, metric_over_training, ablation_figure, ablation_table,
    sweep_figures, noise_map_figure, transport, tsne_figure, mixed_label_figure, learned_noise,
    confusion_figure,
)  # fmt: skip
VERDICT_BLOCKS: tuple[Callable[[TaskRuns], Block | None], ...] = (verdict_table, reliability_figure)
VERDICTS_INTRODUCTION = (
    "A verdict says without labels what to expect of a domain. ok: it looks like the source. "
    "shifted: it differs, but the accuracy should hold. failing: the accuracy should drop. "
    "unknown: it is unlike anything that the model was tested with."
)
SCORES_INTRODUCTION = (
    "A domain score measures how unlike the source a domain is, without labels. A useful score "
    "rises with the error."
)
ADAPTATION_INTRODUCTION = (
    "A model trained on one domain is adapted with a few labelled samples of another and evaluated "
    "on the test data of that domain."
)


@dataclass(frozen=True)
class Section:
    """A part of the page: a task, or something that concerns all of them."""

    title: str
    blocks: list[Block]
    introduction: str = ""

    @property
    def slug(self) -> str:
        return slug(self.title)


def report_files(folders: Sequence[Path]) -> dict[str, bytes]:
    """Return every file of the report by name: the page, all tables as Markdown, each as CSV."""
    inputs = read_folders(folders)
    tasks = group_by_task(inputs.runs, inputs.left_out)
    sections = build_sections(inputs, tasks)
    tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    header = "# Tables of the report\n\nIn brackets: value in the paper (ours minus the paper's)."
    text = "\n\n".join([header, *(table.markdown() for table in tables)]) + "\n"
    page = render_within_limit(inputs, tasks, sections)
    files = {PAGE: page.encode(), TABLES: text.encode()}
    return files | {f"tables/{table.slug}.csv": table.csv().encode() for table in tables}


def build_sections(inputs: ReportInputs, tasks: Sequence[TaskRuns]) -> list[Section]:
    """Return everything that the runs and results allow to show."""
    left_out = inputs.left_out
    sections = [Section("Overview", [overview_table(tasks)])] if tasks else []
    for task in tasks:
        blocks = _task_blocks(task, TASK_BLOCKS, left_out)
        sections.append(Section(task.title, blocks, _introduce(task)))
    verdicts = [b for task in tasks for b in _task_blocks(task, VERDICT_BLOCKS, left_out)]
    if verdicts:
        sections.append(Section("Verdicts", verdicts, VERDICTS_INTRODUCTION))
    scores: list[Block] = []
    for facts in inputs.score_comparisons:
        scores += _build("scores of unseen compare-scores", left_out, partial(_score_blocks, facts))
    if scores:
        sections.append(Section("Comparison of uncertainty scores", scores, SCORES_INTRODUCTION))
    tables: list[Block] = []
    for rows, paper in inputs.adaptations:
        build_tables = partial(adaptation_tables, rows, paper)
        tables += _build("summary of unseen adapt-grid", left_out, build_tables)
    if tables:
        sections.append(Section("Few-shot adaptation", tables, ADAPTATION_INTRODUCTION))
    if tasks:
        sections.append(Section(ALL_RUNS, [runs_table(tasks)]))
    return sections


def _task_blocks(
    task: TaskRuns, builders: Sequence[Callable[[TaskRuns], Any]], left_out: list[str]
) -> list[Block]:
    blocks: list[Block] = []
    for build in builders:
        name = f"{task.title}, {build.__name__.replace('_', ' ')}"
        blocks += _build(name, left_out, partial(build, task))
    return blocks


def _score_blocks(facts: dict[str, Any]) -> list[Block]:
    task, variant = facts["task"], facts["variant"]
    title = task if variant == "default" else f"{task}/{variant}"
    figure = comparison_figure(facts, title)
    return [*([figure] if figure else []), *score_tables(facts, title)]


def _introduce(task: TaskRuns) -> str:
    count = len(task.domains)
    if not count:
        return f"Trained on {task.source}; not evaluated on unseen domains. Metric: {task.metric}."
    names = ", ".join(task.domains)
    if count > MAX_DOMAINS:
        names = f"{task.domains[0]} to {task.domains[-1]}"
    plural = "s" if count > 1 else ""
    return (
        f"Trained on {task.source} only, evaluated on {count} unseen domain{plural}: {names}. "
        f"Metric: {task.metric}."
    )


def _build(name: str, left_out: list[str], build: Callable[[], Any]) -> list[Block]:
    """Return the blocks; if saved files are damaged, note that and return none."""
    try:
        result = build()
    except Exception as error:  # damaged arrays fail in many ways
        left_out.append(f"{name}: the saved data cannot be used: {error!r}")
        return []
    if result is None:
        return []
    return list(result) if isinstance(result, list | tuple) else [result]


def render_within_limit(
    inputs: ReportInputs,
    tasks: Sequence[TaskRuns],
    sections: Sequence[Section],
    limit: int = MAX_BYTES,
) -> str:
    """Render the page; while it is too large, leave out its largest figure and say so."""
    notes = list(inputs.left_out)
    if not has_tsne() and any(task.of(OURS) for task in tasks):
        notes.append(MISSING)
    sections = list(sections)
    while True:
        text = _render(inputs, tasks, sections, notes)
        if len(text.encode()) <= limit:
            return text
        figures = [
            (_size(block), i, j)
            for i, section in enumerate(sections)
            for j, block in enumerate(section.blocks)
            if isinstance(block, Figure)
        ]
        if not figures:
            raise UnseenError(
                f"the tables alone exceed {limit / 1e6:.0f} MB: report on fewer runs at a time"
            )
        _, i, j = max(figures)
        section = sections[i]
        name = f"{section.title}: the figure “{section.blocks[j].title}”"
        notes.append(f"{name}, to keep this page below {limit / 1e6:.0f} MB")
        rest = [block for k, block in enumerate(section.blocks) if k != j]
        sections[i] = Section(section.title, rest, section.introduction)


def _size(figure: Figure) -> int:
    images = sum(4 * len(p.png) // 3 for row in figure.rows for p in row.pictures)
    return images + sum(len(panel.svg) for panel in figure.panels)


def _render(
    inputs: ReportInputs,
    tasks: Sequence[TaskRuns],
    sections: Sequence[Section],
    notes: Sequence[str],
) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    counter = iter(range(1, 10**6))

    def breakable(text: object) -> Markup:
        return Markup(re.sub(r"([_/]|-&gt;)(?=\w)", r"\1<wbr>", str(escape(text))))

    environment.filters["inline"] = lambda svg: unique_ids(svg, f"p{next(counter)}")
    environment.filters["data"] = lambda p: f"data:image/png;base64,{base64.b64encode(p).decode()}"
    environment.filters["breakable"] = breakable
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["measurement"] = lambda cell: isinstance(cell, Measurement)
    runs = [
        (task, group, run, command_of(run))
        for task in tasks
        for group in task.groups
        for run in group.runs
    ]
    return environment.get_template("page.html.j2").render(
        sections=sections,
        notes=notes,
        citation=CITATION,
        symbols=list(SYMBOLS.values()),
        style=(here / "page.css").read_text(),
        script=(here / "page.js").read_text(),
        colors=len(SERIES),
        runs=runs,
        runs_section=ALL_RUNS,
        counts={"runs": len(inputs.runs), "tasks": len(tasks)},
        slug=slug,
    )
