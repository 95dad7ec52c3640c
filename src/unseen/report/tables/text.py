"""Tables for people, on a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table to stdout, numbers to the right and words to the left."""
    console = Console()
    console.print(title, style="bold", soft_wrap=True, highlight=False)
    table = Table(show_header=any(header))
    for index, name in enumerate(header):
        numbers = all(str(row[index])[:1] in "0123456789-+.±" for row in rows)
        table.add_column(name, justify="right" if numbers and index else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The same as Markdown."""
    line = "| " + " | ".join(["---"] + ["---:"] * (len(header) - 1)) + " |"
    return "\n".join(
        ["| " + " | ".join(map(str, row)) + " |" for row in (header,)] + [line]
    ) + "".join("\n| " + " | ".join(map(str, row)) + " |" for row in rows)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"
