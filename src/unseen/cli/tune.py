"""`unseen tune`."""

from __future__ import annotations

import sys
from pathlib import Path

from unseen.cli.options import Count, Json, Seed, Settings, emit, say
from unseen.experiments.tuning.outputs import table_rows
from unseen.experiments.tuning.tune import tune as search
from unseen.report.tables import show
from unseen.schema import parse_settings


def tune(
    task: str,
    *,
    space: Path,
    out: Path | None = None,
    trials: Count = 40,
    method: str | None = None,
    shifts: str | None = None,
    set_: Settings = None,
    samples: Count = 200,
    workers: Count = 1,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Search for settings on synthetic shifts of a task's source; no unseen domain is loaded.

    A search that was stopped goes on when the command is repeated. Exits with 1 if it is not
    finished.

    Parameters
    ----------
    task
        A name from `unseen tasks`, optionally with /variant, your own task as
        package.module:function, or your own data as data:PATH, with options such as
        "data:PATH?source=NAME&model=package.module:function".
    space
        TOML file with the ranges and choices to draw from.
    out
        Folder of the search. By default tune/TASK-METHOD, or tune/TASK-FILE without --method.
    trials
        Configurations to try, those of earlier calls included.
    method
        By default that of the file, else uncertainty_guided.
    shifts
        generic, or a task of synthetic shifts such as digits_shifts. By default the task's own, and
        generic if it has none.
    samples
        Samples of each shift.
    workers
        Trials at a time, one thread each. With more than one, results depend on their timing.
    """
    settings = parse_settings(set_ or [])
    place = out or Path("tune") / "-".join(
        word.replace("/", "-").replace(":", "-").strip("-") for word in (task, method or space.stem)
    )
    result = search(
        task,
        space,
        place,
        trials=trials,
        method=method,
        settings=settings,
        shifts=shifts,
        samples=samples,
        seed=seed,
        workers=workers,
    )
    if not emit(result, json_):
        header, rows = table_rows(result)
        show(f"{result['method']} on {result['measured_on']}", header, rows)
        if result["best"] is not None:
            print(f"best settings: {result['config']}")
            print(f"next: unseen train --config {result['config']} --out RUN")
    for label, message in result["failed_workers"].items():
        say(f"{label} failed: {message}")
    if result["tried"] < trials:
        say(f"{result['tried']} of {trials} trials are finished: repeat the command to go on")
        sys.exit(1)
