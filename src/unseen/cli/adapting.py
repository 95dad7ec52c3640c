"""Commands that adapt: adapt, adaptations, few-shot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from unseen.adaptation import ADAPTATIONS, adaptation_named
from unseen.cli.options import (
    Count,
    CountOrNone,
    Device,
    Flag,
    Json,
    RunFolder,
    Seed,
    TaskWord,
    emit,
    say,
)
from unseen.cli.runs import task_of
from unseen.experiments import adapt as adapting
from unseen.experiments.adapt_grid import read_few_shot, run_few_shot, write_few_shot
from unseen.report.tables import percent, show
from unseen.training.config import parse
from unseen.training.run import Run

AdaptationSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="One setting as key=value; repeatable; `unseen adaptations NAME` lists them.",
    ),
]


def attach(app: App) -> None:
    app.command(adapt)
    app.command(adaptations)
    app.command(few_shot, name="few-shot")


def adapt(
    run: RunFolder,
    *,
    domain: str | None = None,
    shots: CountOrNone = None,
    with_: Annotated[str, Parameter(name="--with")] = "fine_tune",
    draws: CountOrNone = None,
    steps: CountOrNone = None,
    lr: float | None = None,
    keep_source: float | None = None,
    out: Path | None = None,
    set_: AdaptationSettings = None,
    seed: Seed = 0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Adapt to an unseen domain with a few labels, or with its unlabelled samples, and say what that did to the source.

    Parameters
    ----------
    domain
        An unseen domain of the task; may be left out where there is only one.
    shots
        Labelled samples per class, for the methods that learn from a few.
    with_
        A name from `unseen adaptations`.
    draws
        How often to do it anew, with fresh shots: 5, or 1 with the whole unlabelled target.
    steps
        Updates per draw; the method's own number if left out.
    lr
        Learning rate of the updates; the method's own if left out.
    keep_source
        How much the held-out source may lose, 0.02 for two points: weights go back towards the start until it does not.
    out
        A new run folder for the first draw's model, which `unseen evaluate` and `unseen score` take.
    """
    at = Run(run)
    own = {name: value for name, value in (("steps", steps), ("lr", lr)) if value is not None}
    result = adapting.adapt(
        at, task_of(at, task), domain, shots, by=with_, draws=draws, settings={**own, **parse(set_ or [])},
        keep_source=keep_source, seed=seed, out=out, device=device,
    )  # fmt: skip
    lost = result["source_before"] - result["source_after"]
    if lost > 0.005 and keep_source is None:
        say(
            f"adapting made the source worse by {percent(lost)} points; --keep-source {min(0.02, lost / 2):.2g} would bound that"
        )
    if emit(result, json_):
        return
    after, source_after = (
        f"{percent(result[mean])} ± {percent(result[std])}"
        for mean, std in (("after_mean", "after_std"), ("source_after", "source_after_std"))
    )
    rows = [
        [result["domain"], percent(result["before"]), after],
        ["source", percent(result["source_before"]), source_after],
    ]
    given = "all samples, no labels" if shots is None else f"{shots} labels a class"
    title = f"{with_} from {result['start']}, {given}, {result['draws']} draw{'s' if result['draws'] > 1 else ''}"
    show(title, [result["metric"], "before", "after"], rows)
    if keep_source is not None:
        gone = ", ".join(percent(share) for share in result["shares"])
        print(
            f"the held-out source may lose {percent(keep_source)} points: gone {gone} % of the way from the start"
        )
    if out is not None:
        print(f"next: unseen evaluate {out}{'' if task is None else f' --task {task}'}")


def adaptations(name: str | None = None, *, json_: Json = False) -> None:
    """The ways to adapt there are; with a name, that one's settings and defaults.

    Parameters
    ----------
    name
        One of them, in full.
    """
    chosen = ADAPTATIONS.values() if name is None else [adaptation_named(name)]
    result: list[dict[str, Any]] = [
        {"name": kind.name, "summary": kind.summary, "paper": kind.paper, "needs": kind.needs,
         "settings": {setting: p.default for setting, p in kind.settings_of().items()}}
        for kind in chosen
    ]  # fmt: skip
    if emit({"adaptations": result}, json_):
        return
    if name is None:
        rows = [[kind["name"], kind["needs"], kind["summary"]] for kind in result]
        show(
            "adaptations; `unseen adaptations NAME` lists one's settings",
            ["name", "learns from", "idea"],
            rows,
        )
        return
    rows = [[setting, default] for setting, default in result[0]["settings"].items()]
    show(
        f"{name}: {result[0]['summary']}; learns from {result[0]['needs']}\n{result[0]['paper']}",
        ["setting", "default"],
        rows,
    )


def few_shot(
    grid: Path,
    *,
    workers: Count = 1,
    tables_only: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Train a grid's starts, adapt each by each of its rows, and write the tables. Exits with 1 if something failed.

    Parameters
    ----------
    grid
        A TOML file, such as grids/few_shot_adaptation.toml.
    workers
        Adaptations at a time, one thread each.
    tables_only
        Train and adapt nothing: write the tables of what is finished.
    """
    wanted = read_few_shot(grid)
    result = write_few_shot(wanted) if tables_only else run_few_shot(wanted, workers)
    if not emit(result, json_) and result["adapted"]:
        print((wanted.results / "table.md").read_text())
    for label, said in result["failed"].items():
        say(f"{label} failed: {said}")
    if result["adapted"] < result["wanted"]:
        say(f"{result['adapted']} of {result['wanted']} adaptations are finished")
        sys.exit(1)
