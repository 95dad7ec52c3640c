"""`unseen evaluate`."""

from __future__ import annotations

from typing import Any

from unseen.cli.options import (
    CountOrNone,
    Device,
    Json,
    OwnData,
    RunFolder,
    TaskWord,
    emit,
    task_of,
    task_title,
)
from unseen.experiments import evaluate as evaluation
from unseen.report.tables import percent, show
from unseen.report.units import format_value
from unseen.training.run import Run

TABLE_WIDTH = 4  # domains side by side; more do not fit into 80 columns


def evaluate(
    run: RunFolder,
    *,
    samples: CountOrNone = None,
    task: TaskWord = None,
    own: OwnData = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Evaluate a run on every unseen domain and on the held-out source.

    Parameters
    ----------
    samples
        Evaluate at most this many random samples per domain; by default all of them.
    """
    finished = Run(run)
    result = evaluation.evaluate(finished, task_of(finished, task, own), device, samples=samples)
    if not emit(result, json_):
        _show_domains(result)
        if "classes" in result["source"]:
            _show_classes(result)


def _show_domains(result: dict[str, Any]) -> None:
    source, adapted = result["source"], result.get("adapted_to")
    metric = next(k for k in source if k not in ("name", "n", "classes"))
    rows = [[f"{source['name']} (source)", format_value(source[metric], metric), source["n"]]]
    rows += [
        [f"{name} (adapted to)" if name == adapted else name, _value(d[metric], metric), d["n"]]
        for name, d in result["domains"].items()
    ]
    if result["domains"]:
        average = result["average"]
        shown = "-" if average is None else format_value(average, metric)
        rows.append(["average, unseen", shown, ""])
    title = f"{task_title(result)} {result['method']} seed {result['seed']}"
    show(title, ["domain", metric, "n"], rows)


def _show_classes(result: dict[str, Any]) -> None:
    domains = {result["source"]["name"]: result["source"], **result["domains"]}
    names = list(result["source"]["classes"])
    for first in range(0, len(domains), TABLE_WIDTH):
        columns = dict(list(domains.items())[first : first + TABLE_WIDTH])
        rows = [[n, *(_percent_or_dash(d["classes"][n]) for d in columns.values())] for n in names]
        kind = "average precision" if "map" in result["source"] else "intersection over union"
        show(f"{kind} of each class", ["class", *columns], rows)


def _value(value: float | None, metric: str) -> str:
    return "no labels" if value is None else format_value(value, metric)


def _percent_or_dash(value: float | None) -> str:
    return "-" if value is None else percent(value)
