"""The README's table of results, written between two markers from the published summaries: nobody types an accuracy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from unseen.errors import UnseenError
from unseen.report.published import OURS, PLAIN, Line, read_published
from unseen.report.tables import markdown

START, END = "<!-- results -->", "<!-- /results -->"


def update_readme(page: Path, results: Path) -> tuple[bool, str]:
    """Write the table of the results as they are now into the page; says whether it changed, and gives the table."""
    table = results_table(read_published(results))
    try:
        before = page.read_text()
    except OSError as error:
        raise UnseenError(f"{page} cannot be read: {error.strerror}") from error
    after = between_markers(before, table, page)
    if after != before:
        torn = page.with_name(f".{page.name}.{os.getpid()}")
        torn.write_text(after)
        torn.replace(page)
    return after != before, table


def between_markers(text: str, table: str, page: Path) -> str:
    """The text with the table between its markers."""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise UnseenError(
            f"{page} needs the line {START} and, below it, the line {END}, once each: the table goes between them"
        )
    head, _, rest = text.partition(START)
    return f"{head}{START}\n{table}\n{END}{rest.partition(END)[2]}"


def results_table(lines: Sequence[Line]) -> str:
    """One row for each task: plain training, our method, and what else did best in the same grid."""
    rows = []
    for where in dict.fromkeys(line.where for line in lines):
        pair = _pair(lines, where)
        if pair is None or _part_of_a_whole(lines, pair[0]):
            continue
        plain, ours = pair
        same = (ours.grid, where, ours.seeds)  # a row of fewer seeds does not compare
        others = [
            line
            for line in lines
            if (line.grid, line.where, line.seeds) == same and line not in pair
        ]
        best = max(others, key=Line.value, default=None)
        top = max(line.value() for line in (*pair, *others))
        rows.append([
            _task(ours), _marked(plain, top), _marked(ours, top), f"{100 * (ours.value() - plain.value()):+.1f}",
            f"{best.name}: {_marked(best, top)}" if best else "-", len(ours.seeds), f"[{ours.grid}](results/{ours.grid})",
        ])  # fmt: skip
    if not rows:
        return "No results yet."
    return markdown(
        [
            "average over unseen domains, %",
            PLAIN,
            OURS,
            "gain",
            "best of the rest",
            "seeds",
            "from",
        ],
        rows,
    )


def _pair(lines: Sequence[Line], where: str) -> tuple[Line, Line] | None:
    """Plain training and our method, both as they are by default, of one grid: the task's own, else that with most seeds."""
    found = []
    for ours in (
        line
        for line in lines
        if (line.where, line.method, line.setting) == (where, OURS, "default")
    ):
        same = (ours.grid, where, PLAIN, "default")
        plain = next(
            (line for line in lines if (line.grid, line.where, line.method, line.setting) == same),
            None,
        )
        if plain is not None:
            found.append((plain, ours))
    return max(
        found, key=lambda pair: (pair[1].grid == pair[1].task, len(pair[1].seeds)), default=None
    )


def _part_of_a_whole(lines: Sequence[Line], line: Line) -> bool:
    """Is it one variant of a grid that tells all of them together?"""
    return line.variant != "all" and any(
        (x.grid, x.task, x.variant) == (line.grid, line.task, "all") for x in lines
    )


def _task(line: Line) -> str:
    metric = "" if line.metric == "accuracy" else f", {line.metric}"
    variant = "" if line.variant in ("default", "all") else f" {line.variant}"
    return f"[{line.task}](docs/tasks/{line.task}.md){variant}{metric}"


def _marked(line: Line, top: float) -> str:
    """The figure, bold if none of its row is higher."""
    return f"**{line.cell()}**" if line.value() == top else line.cell()
