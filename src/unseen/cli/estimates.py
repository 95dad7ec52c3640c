"""`unseen estimate`: the accuracy on a domain, foretold without its labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from unseen.checks import check_fraction
from unseen.cli.options import Device, Flag, Json, RunFolder, TaskWord, emit, say, task_of
from unseen.errors import UnseenError
from unseen.experiments.estimate_accuracy import ESTIMATORS, examine, write_tables
from unseen.report.tables import percent, show
from unseen.training.run import Run


def attach(app: App) -> None:
    app.command(estimate)


def estimate(
    *runs: RunFolder,
    domain: str | None = None,
    all_: Annotated[bool, Flag] = False,
    level: float = 0.9,
    out: Path | None = None,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Foretell the accuracy on a domain without its labels, with an interval, beside average confidence and ATC.

    The first call for a run fits the curve with synthetic shifts of its held-out source data and keeps it in the run's folder.

    Parameters
    ----------
    domain
        A domain of the task.
    all_
        Every domain of the task, and how far each estimate is off.
    level
        How often the interval should hold the real accuracy.
    out
        With --all: the folder for summary.json, table.md and table.csv; of several runs their mean.
    """
    if not runs:
        raise UnseenError("name a finished run: unseen estimate RUN --domain NAME, or --all")
    if (domain is None) != all_:
        raise UnseenError("name one domain with --domain, or ask for --all")
    if out is not None and not all_:
        raise UnseenError("--out writes tables of all domains: add --all")
    check_fraction("--level", level)
    made = [Run(folder) for folder in runs]
    wanted = None if domain is None else [domain]
    results = [examine(run, task_of(run, task), wanted, level=level, device=device) for run in made]
    if out is not None:
        own = [] if task is None else ["--task", task]
        write_tables(
            out,
            results,
            " ".join(["unseen estimate", *map(str, runs), "--all --out", str(out), *own]),
        )
    if any(r["fallback"] for r in results):
        say(f"no learned sigma; the score is a fallback: {results[0]['score_name']}")
    if not emit(results[0] if len(results) == 1 else {"runs": results}, json_):
        for result in results:
            _show(result)


def _show(result: dict[str, Any]) -> None:
    rows = []
    for name, d in result["domains"].items():
        told = {e: percent(v) for e, v in d["estimates"].items()}
        told |= {
            e: f"{told[e]} ({'-'.join(map(percent, ends))})" for e, ends in d["intervals"].items()
        }
        rows.append(
            [
                name,
                percent(d["accuracy"]) if "accuracy" in d else "unknown",
                *(told[e] for e in ESTIMATORS),
            ]
        )
    if len(rows) > 1 and result["mean_absolute_error"]:
        rows.append(["mean error", "", *map(percent, result["mean_absolute_error"].values())])
    title = f"{result['task']} {result['method']} seed {result['seed']}: accuracy foretold without labels, %"
    show(
        f"{title}; in brackets the {percent(result['level'])} % interval",
        ["domain", "real", *ESTIMATORS],
        rows,
    )
    if beyond := [name for name, d in result["domains"].items() if d["extrapolates"]]:
        say(
            f"the score of {', '.join(beyond)} is beyond every synthetic shift: the accuracy there may be as low as chance"
        )
