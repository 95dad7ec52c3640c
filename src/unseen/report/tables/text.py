"""Tables on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from unseen.report.units import format_value


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table to stdout, numbers right-aligned."""
    console = Console()
    console.print(title, style="bold", soft_wrap=True, highlight=False)
    table = Table(show_header=any(header))
    for index, name in enumerate(header):
        numeric = all(str(row[index])[:1] in "0123456789-+.±" for row in rows)
        table.add_column(name, justify="right" if numeric and index else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table; all columns but the first are right-aligned."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (header, rule, *rows))


def percent(value: float) -> str:
    """Return a fraction as a percentage with one digit, without the sign."""
    return f"{100 * value:.1f}"


def value_with_std(mean: float, std: float, seeds: int, metric: str) -> str:
    """Return a mean of a metric as it is shown, with its standard deviation if there are seeds."""
    shown, spread = format_value(mean, metric), format_value(std, metric)
    return f"{shown} ± {spread}" if seeds > 1 else shown


def percent_with_std(mean: float, std: float, seeds: int) -> str:
    """Return a mean fraction as a percentage, with its standard deviation if there are seeds."""
    return f"{percent(mean)} ± {percent(std)}" if seeds > 1 else percent(mean)
