"""`unseen bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from unseen.cli.cluster_options import Cluster, make_runner
from unseen.cli.options import CountOrNone, Flag, Json, emit, parse_ints, say
from unseen.experiments.grid import read_grid, with_published, with_seeds
from unseen.experiments.run_grid import run_grid, write_tables


def bench(
    grid: Path,
    *,
    workers: CountOrNone = None,
    cluster: Cluster = None,
    seeds: Annotated[
        list[int] | None, Parameter(negative="", consume_multiple=True, converter=parse_ints)
    ] = None,
    published: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    tables_only: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Run a grid of methods, settings and seeds, and write its tables.

    Exits with 1 if a run failed.

    Parameters
    ----------
    grid
        TOML file, e.g. one of grids/.
    workers
        Runs at a time. By default 2 on this machine, one thread each, and all that fit on a
        cluster.
    seeds
        Use these seeds instead of the grid's; the tables then hold these alone.
    published
        Folders of results; a run counts as finished if their runs.json has one with the same
        configuration and seed.
    tables_only
        Train nothing; write the tables of the finished runs.
    """
    chosen = read_grid(grid) if seeds is None else with_seeds(read_grid(grid), seeds)
    chosen = with_published(chosen, published) if published else chosen
    if tables_only:
        result = write_tables(chosen)
    else:
        with make_runner(cluster, workers, default=2) as runner:
            result = run_grid(chosen, runner=runner)
    if not emit(result, json_) and result["runs"]:
        print((chosen.results / "table.md").read_text())
    for label, message in result.get("failed", {}).items():
        say(f"{label} failed: {message}")
    if result["runs"] < result["wanted"]:
        say(f"{result['runs']} of {result['wanted']} runs are finished")
        sys.exit(1)
