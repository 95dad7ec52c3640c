"""The README's table of results, generated from the published summaries between two markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.reading import MB, read_text
from unseen.report.published import ERM, OURS, PublishedRow, read_published
from unseen.report.tables.text import markdown

LARGEST_PAGE = 16 * MB
START, END = "<!-- results -->", "<!-- /results -->"
LEAD, BEST = "lead_", "best"  # grids of recipes, and their row with the whole recipe
HEADER = [
    "average over unseen domains, %", ERM, OURS, "gain", "best other method", "seeds", "from",
    "best recipe",
]  # fmt: skip


def update_readme(page: Path, results: Path) -> tuple[bool, str]:
    """Write the table of results into the page; return whether it changed, and the table."""
    table = results_table(read_published(results))
    before = read_text(page, LARGEST_PAGE)
    after = replace_between_markers(before, table, page)
    if after != before:
        write_atomically(page, after.encode())
    return after != before, table


def replace_between_markers(text: str, table: str, page: Path) -> str:
    """Return the text with the table between its markers."""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise UnseenError(
            f"{page} needs the line {START} and, below it, the line {END}, once each: "
            "the table is written between them"
        )
    head, _, rest = text.partition(START)
    return f"{head}{START}\n{table}\n{END}{rest.partition(END)[2]}"


def results_table(published: Sequence[PublishedRow]) -> str:
    """Return a row for each task: ERM, our method, and the best other method of the same grid."""
    rows = []
    for task in dict.fromkeys(row.task_title for row in published):
        pair = _find_pair(published, task)
        if pair is None or _is_part_of_average(published, pair[0]):
            continue
        erm, ours = pair
        # Rows of fewer seeds are not comparable.
        key = (ours.grid, task, ours.seeds)
        others = [
            row
            for row in published
            if (row.grid, row.task_title, row.seeds) == key and row not in pair
        ]
        best = max(others, key=PublishedRow.mean, default=None)
        top = max(row.mean() for row in (*pair, *others))
        rows.append([
            _task_link(ours), _bold_if_best(erm, top), _bold_if_best(ours, top),
            f"{100 * (ours.mean() - erm.mean()):+.1f}",
            f"{best.name}: {_bold_if_best(best, top)}" if best else "-", len(ours.seeds),
            f"[{ours.grid}](results/{ours.grid})", _recipe(published, ours),
        ])  # fmt: skip
    return markdown(HEADER, rows) if rows else "No results yet."


def _recipe(published: Sequence[PublishedRow], ours: PublishedRow) -> str:
    """Return the row of the whole recipe on the same task, with its seeds."""
    title = (LEAD + ours.task, ours.task_title, BEST)
    for row in published:
        if (row.grid, row.task_title, row.setting) == title:
            seeds = len(row.seeds)
            return f"[{row.cell()}](results/{row.grid}), {seeds} seed{'s'[: seeds > 1]}"
    return "-"


def _find_pair(
    published: Sequence[PublishedRow], task: str
) -> tuple[PublishedRow, PublishedRow] | None:
    """Return ERM and our method with default settings of one grid.

    The task's own grid comes first, then the one with most seeds.
    """
    default = [row for row in published if (row.task_title, row.setting) == (task, "default")]
    pairs = [
        (erm, ours)
        for ours in default
        for erm in default
        if ours.method == OURS and erm.method == ERM and erm.grid == ours.grid
    ]

    def rank(pair: tuple[PublishedRow, PublishedRow]) -> tuple[bool, int]:
        return pair[1].grid == pair[1].task, len(pair[1].seeds)

    return max(pairs, key=rank, default=None)


def _is_part_of_average(published: Sequence[PublishedRow], row: PublishedRow) -> bool:
    """Return whether the grid also has a row of all variants together."""
    return row.variant != "all" and any(
        (x.grid, x.task, x.variant) == (row.grid, row.task, "all") for x in published
    )


def _task_link(row: PublishedRow) -> str:
    metric = "" if row.metric == "accuracy" else f", {row.metric}"
    variant = "" if row.variant in ("default", "all") else f" {row.variant}"
    return f"[{row.task}](docs/tasks/{row.task}.md){variant}{metric}"


def _bold_if_best(row: PublishedRow, top: float) -> str:
    return f"**{row.cell()}**" if row.mean() == top else row.cell()
