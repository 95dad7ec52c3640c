"""`unseen adapt-grid`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from unseen.cli.options import Count, Flag, Json, emit, say
from unseen.experiments.adapt_grid import read_adaptation_grid
from unseen.experiments.run_adapt_grid import run_adaptation_grid, write_tables


def adapt_grid(
    grid: Path,
    *,
    workers: Count = 1,
    tables_only: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Train the starting points of a grid, adapt each by every row, and write the tables.

    Exits with 1 if an adaptation failed.

    Parameters
    ----------
    grid
        TOML file, e.g. grids/few_shot_adaptation.toml.
    workers
        Adaptations to run at a time, one thread each.
    tables_only
        Run nothing; write the tables of the finished adaptations.
    """
    adaptations = read_adaptation_grid(grid)
    result = write_tables(adaptations) if tables_only else run_adaptation_grid(adaptations, workers)
    if not emit(result, json_) and result["adapted"]:
        print((adaptations.results / "table.md").read_text())
    for label, message in result["failed"].items():
        say(f"{label} failed: {message}")
    if result["adapted"] < result["wanted"]:
        say(f"{result['adapted']} of {result['wanted']} adaptations are finished")
        sys.exit(1)
