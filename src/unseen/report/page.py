"""One page from everything that was found, and its tables as Markdown and CSV. The same input gives the same bytes."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.report.figures import curves, domains, features, images, scores_page
from unseen.report.figures.svg import SERIES, SYMBOLS, Plate, unique_ids
from unseen.report.groups import TaskRuns, by_task
from unseen.report.paper import CITATION
from unseen.report.runs import Found, find
from unseen.report.tables import adaptation_page
from unseen.report.tables.runs import ablation_table, command_of, overview, results, runs_table
from unseen.report.tables.table import Figure, Table, slug

LIMIT = 5_000_000  # bytes of the page
Block = Table | Plate
PAGE, TABLES = "report.html", "tables.md"


@dataclass(frozen=True)
class Section:
    """A part of the page: a task, or something of all of them."""

    title: str
    blocks: list[Block]
    lead: str = ""

    @property
    def slug(self) -> str:
        return slug(self.title)


def report_files(folders: Sequence[Path]) -> dict[str, bytes]:
    """Every file of the report by its name: the page, all tables as Markdown, and each as CSV."""
    found = find(folders)
    tasks = by_task(found.runs, found.left_out)
    sections = sections_of(found, tasks)
    tables = [block for section in sections for block in section.blocks if isinstance(block, Table)]
    files = {PAGE: page(found, tasks, sections).encode(), TABLES: _markdown(tables).encode()}
    for table in tables:
        files[f"tables/{table.slug}.csv"] = table.csv().encode()
    return files


def sections_of(found: Found, tasks: Sequence[TaskRuns]) -> list[Section]:
    """Everything there is to show; what the runs do not hold is not there."""
    sections = [Section("At a glance", [overview(tasks)])] if tasks else []
    sections += [
        Section(task.title, _task_blocks(task, found.left_out), _lead(task)) for task in tasks
    ]
    blocks: list[Block] = []
    for facts in found.scores:
        blocks += _made(
            "scores of unseen uncertainty", found.left_out, partial(scores_page.blocks, facts)
        )
    if blocks:
        sections.append(Section("Uncertainty of domains", blocks, scores_page.LEAD))
    tables: list[Block] = []
    for rows, paper in found.few_shot:
        tables += _made(
            "the summary of unseen few-shot", found.left_out, partial(adaptation_page.blocks, rows, paper)
        )
    if tables:
        sections.append(Section("Few labels of a new domain", tables, adaptation_page.LEAD))
    if tasks:
        sections.append(Section("Every run", [runs_table(tasks)]))
    return sections


def _lead(task: TaskRuns) -> str:
    count = len(task.domains)
    unseen = (
        ", ".join(task.domains)
        if count <= domains.MOST_DOMAINS
        else f"{task.domains[0]} to {task.domains[-1]}"
    )
    return (
        f"Trained on {task.source} only, examined on {count} domain{'s' if count > 1 else ''} that training never saw: {unseen}. "
        f"Measured by {task.metric}."
    )


def _task_blocks(task: TaskRuns, left_out: list[str]) -> list[Block]:
    makers: list[Callable[[TaskRuns], Block | Sequence[Block] | None]] = [
        curves.severities, domains.by_domain, images.examples, images.scenes, curves.over_training, domains.ablation_plate,
        ablation_table, curves.sweeps, images.maps, curves.transport, features.features, features.mixed_labels,
        curves.watched, images.confusion,
    ]  # fmt: skip
    blocks: list[Block] = list(results(task))
    for make in makers:
        what = f"{task.title}, {make.__name__.replace('_', ' ')}"
        blocks += _made(what, left_out, partial(make, task))
    return blocks


def _made(what: str, left_out: list[str], make: Callable[[], Any]) -> list[Block]:
    """What a maker gives; where saved files are not what they should be, a remark instead: one spoilt file spoils no page."""
    try:
        made = make()
    except Exception as error:  # saved arrays can be wrong in more ways than could be listed
        left_out.append(f"{what}: what was saved for it cannot be used: {error!r}")
        return []
    return [] if made is None else list(made) if isinstance(made, list | tuple) else [made]


def page(
    found: Found, tasks: Sequence[TaskRuns], sections: Sequence[Section], limit: int = LIMIT
) -> str:
    """The page; where it would pass the limit, its largest figures are left out, and it says which."""
    remarks = list(found.left_out)
    if not features.can_embed() and any(
        domains.OURS in g.method for task in tasks for g in task.groups
    ):
        remarks.append(features.NEEDS)
    sections = list(sections)
    while True:
        text = _rendered(found, tasks, sections, remarks)
        if len(text.encode()) <= limit:
            return text
        plates = [
            (_size(b), i, j)
            for i, s in enumerate(sections)
            for j, b in enumerate(s.blocks)
            if isinstance(b, Plate)
        ]
        if not plates:
            raise UnseenError(
                f"the tables alone pass {limit / 1e6:.0f} MB: make reports of fewer runs at a time"
            )
        _, i, j = max(plates)
        section = sections[i]
        remarks.append(
            f"{section.title}: the figure “{section.blocks[j].title}”, to keep this page under {limit / 1e6:.0f} MB"
        )
        sections[i] = Section(
            section.title, [b for k, b in enumerate(section.blocks) if k != j], section.lead
        )


def _size(plate: Plate) -> int:
    return sum(len(p.svg) for p in plate.panels) + sum(
        4 * len(p.png) // 3 for s in plate.strips for p in s.pictures
    )


def _rendered(
    found: Found, tasks: Sequence[TaskRuns], sections: Sequence[Section], remarks: Sequence[str]
) -> str:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError as error:
        raise UnseenError(
            "a report needs Jinja2, which is not installed here: pip install 'unseen[report]'"
        ) from error
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    counter = iter(range(1, 10**6))
    environment.filters["inline"] = lambda svg: unique_ids(svg, f"p{next(counter)}")
    environment.filters["data"] = lambda png: (
        "data:image/png;base64," + base64.b64encode(png).decode()
    )
    environment.filters["breakable"] = lambda text: Markup(
        re.sub(r"([_/]|-&gt;)(?=\w)", r"\1<wbr>", str(escape(text)))
    )
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["figure"] = lambda cell: isinstance(cell, Figure)
    names: dict[str, Any] = {
        "sections": sections, "remarks": remarks, "citation": CITATION, "symbols": list(SYMBOLS.values()),
        "style": (here / "page.css").read_text(), "script": (here / "page.js").read_text(), "colours": len(SERIES),
        "runs": [(task, group, run, command_of(run)) for task in tasks for group in task.groups for run in group.runs],
        "facts": {"runs": len(found.runs), "tasks": len(tasks)}, "slug": slug,
    }  # fmt: skip
    return environment.get_template("page.html.j2").render(**names)


def _markdown(tables: Sequence[Table]) -> str:
    top = (
        "# Tables of the report\n\nIn square brackets what the paper reports, and ours minus that."
    )
    return "\n\n".join([top, *(table.markdown() for table in tables)]) + "\n"
