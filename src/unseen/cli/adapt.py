"""`unseen adapt`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from unseen.cli.options import (
    CountOrNone,
    Device,
    Json,
    OwnData,
    RunFolder,
    Seed,
    TaskWord,
    emit,
    say,
    task_of,
)
from unseen.experiments import adapt as adaptation
from unseen.report.tables import percent, show
from unseen.report.units import format_value, is_error
from unseen.schema import parse_settings
from unseen.training.run import Run

AdaptationSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="One setting as key=value; repeatable. `unseen adaptations NAME` lists the settings.",
    ),
]


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
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Adapt a run to an unseen domain and report the metric on that domain and on the source.

    Parameters
    ----------
    domain
        An unseen domain of the task; optional if there is only one.
    shots
        Labelled samples per class, for methods that use a few labels.
    with_
        A name from `unseen adaptations`.
    draws
        Number of repetitions, each with new shots; by default 5, or 1 without labels.
    steps
        Updates per repetition; by default the method's own number.
    lr
        Learning rate; by default the method's own.
    keep_source
        Largest loss allowed on the held-out source, e.g. 0.02 for two points; weights are
        interpolated towards the start until it holds.
    out
        New run folder for the first adapted model; `unseen evaluate` and `unseen score` accept it.
    """
    finished = Run(run)
    named = {name: value for name, value in (("steps", steps), ("lr", lr)) if value is not None}
    result = adaptation.adapt(
        finished,
        task_of(finished, task, own, pool=True),
        domain,
        shots,
        by=with_,
        draws=draws,
        settings={**named, **parse_settings(set_ or [])},
        keep_source=keep_source,
        seed=seed,
        out=out,
        device=device,
    )
    error = is_error(result["metric"])
    loss = result["source_before"] - result["source_after"]
    if loss > 0.005 and not error and keep_source is None:
        say(
            f"the source lost {percent(loss)} points; "
            f"--keep-source {min(0.02, loss / 2):.2g} would bound the loss"
        )
    if emit(result, json_):
        return
    _show(result)
    if out is not None:
        print(f"next: unseen evaluate {out}{'' if task is None else f' --task {task}'}")


def _show(result: dict[str, Any]) -> None:
    format_metric = partial(format_value, metric=result["metric"])
    after, source_after = (
        "no labels"
        if result[mean] is None
        else f"{format_metric(result[mean])} ± {format_metric(result[std])}"
        for mean, std in (("after_mean", "after_std"), ("source_after", "source_after_std"))
    )
    before = "no labels" if result["before"] is None else format_metric(result["before"])
    rows = [
        [result["domain"], before, after],
        ["source", format_metric(result["source_before"]), source_after],
    ]
    shots, draws = result["shots"], result["draws"]
    samples = "all samples, no labels" if shots is None else f"{shots} labels per class"
    title = f"{result['with']} from {result['start']}, {samples}, {draws} draw{'s'[: draws > 1]}"
    show(title, [result["metric"], "before", "after"], rows)
    if result["keep_source"] is not None:
        points = "" if is_error(result["metric"]) else " points"
        print(
            f"the held-out source may lose {format_metric(result['keep_source'])}{points}: "
            "interpolation "
            f"coefficients {', '.join(f'{share:.3g}' for share in result['shares'])}"
        )
