"""`unseen adapt-grid`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from unseen.cli.cluster_options import Cluster, make_runner
from unseen.cli.options import CountOrNone, Flag, Json, emit, say
from unseen.experiments.adapt_grid import read_adaptation_grid
from unseen.experiments.run_adapt_grid import run_adaptation_grid, write_tables


def adapt_grid(
    grid: Path,
    *,
    workers: CountOrNone = None,
    cluster: Cluster = None,
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
        Adaptations at a time. By default 1 on this machine, one thread each, and all that fit on a
        cluster.
    tables_only
        Run nothing; write the tables of the finished adaptations.
    """
    adaptations = read_adaptation_grid(grid)
    if tables_only:
        result = write_tables(adaptations)
    else:
        with make_runner(cluster, workers, default=1) as runner:
            result = run_adaptation_grid(adaptations, runner=runner)
    if not emit(result, json_) and result["adapted"]:
        print((adaptations.results / "table.md").read_text())
    for label, message in result["failed"].items():
        say(f"{label} failed: {message}")
    if result["adapted"] < result["wanted"]:
        say(f"{result['adapted']} of {result['wanted']} adaptations are finished")
        sys.exit(1)
