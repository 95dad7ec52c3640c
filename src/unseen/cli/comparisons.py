"""Commands on many runs: bench, report, demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from unseen.cli.options import Count, Device, Flag, Json, Seed, Settings, emit, say, whole_numbers
from unseen.errors import UnseenError
from unseen.experiments import demo as demonstration
from unseen.experiments.grid import read_grid, with_published, with_seeds
from unseen.experiments.run_grid import run_grid, write_tables
from unseen.report.write import write_report
from unseen.training.config import parse


def attach(app: App) -> None:
    app.command(bench)
    app.command(report)
    app.command(demo)


def bench(
    grid: Path,
    *,
    workers: Count = 2,
    seeds: Annotated[
        list[int] | None, Parameter(negative="", consume_multiple=True, converter=whole_numbers)
    ] = None,
    published: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    tables_only: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Run a grid of methods, seeds and settings, and write its tables. Exits with 1 if a run failed.

    Parameters
    ----------
    grid
        A TOML file, such as those under bench/.
    workers
        Runs at a time, one thread each.
    seeds
        These seeds instead of the grid's; the tables then hold these alone.
    published
        Folders of results: what their runs.json has of the very runs asked for, settings and seeds alike, counts as finished.
    tables_only
        Train nothing: write the tables of what is finished.
    """
    wanted = read_grid(grid) if seeds is None else with_seeds(read_grid(grid), seeds)
    wanted = with_published(wanted, published) if published else wanted
    result = write_tables(wanted) if tables_only else run_grid(wanted, workers)
    if not emit(result, json_) and result["runs"]:
        print((wanted.results / "table.md").read_text())
    for label, said in result.get("failed", {}).items():
        say(f"{label} failed: {said}")
    if result["runs"] < result["wanted"]:
        say(f"{result['runs']} of {result['wanted']} runs are finished")
        sys.exit(1)


def report(*runs: Path, out: Path, json_: Json = False) -> None:
    """One HTML page of finished runs, with figures, and its tables as Markdown and CSV; from records and saved arrays alone.

    Parameters
    ----------
    runs
        Run folders, or folders that hold some, of any mix of tasks; results of `unseen uncertainty` and `unseen few-shot` too.
    out
        The folder for report.html, tables.md and tables/.
    """
    if not runs:
        raise UnseenError(
            "name run folders, or folders that hold some: unseen report RUNS [RUNS ...] --out DIR"
        )
    result = write_report(runs, out)
    if not emit(result, json_):
        print(f"{result['page']}: {result['bytes'] / 1e6:.1f} MB; tables beside it")


def demo(
    *,
    out: Path = Path("demo"),
    seed: Seed = 0,
    set_: Settings = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Train plainly and uncertainty-guided on the embedded digits, compare them on unseen domains, write a report.

    Parameters
    ----------
    out
        Where runs and report go.
    """
    result = demonstration.run(out, seed=seed, overrides=parse(set_ or []), device=device)
    if not emit(result, json_):
        demonstration.show_result(result)
