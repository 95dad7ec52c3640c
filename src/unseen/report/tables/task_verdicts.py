"""The verdicts that `unseen score` recorded, by domain."""

from __future__ import annotations

from collections.abc import Mapping

from unseen.report.groups import Group, TaskRuns
from unseen.report.runs import FinishedRun
from unseen.report.tables.table import Cell, Measurement, Table
from unseen.report.tables.text import percent

PREFIX = "verdict_"  # of the metric that names the outcome
HEADER = [
    "domain", "method", "seed", "verdict", "predicted accuracy, %", "90 % interval",
    "true accuracy, %", "p-value", "score / threshold",
]  # fmt: skip
CAPTION = (
    "Predicted accuracy: estimated without labels. True accuracy: from the evaluation, where the "
    "metric of the task is the accuracy. p-value: probability of a score at least this high on "
    "the source. A score above its threshold, a ratio above 1, differs from the source."
)


def verdict_table(task: TaskRuns) -> Table | None:
    """Return a row for each run and domain with a verdict; None if there is none."""
    runs = [(group, run) for group in task.groups for run in group.runs if run.verdicts]
    if not runs:
        return None
    rows = [_row(task, group, run, domain) for group, run in runs for domain in run.verdicts]
    details = ["method", "seed"] if len(runs) == 1 else []
    return Table(f"{task.title}: verdicts", HEADER, rows, CAPTION, details=details)


def _row(task: TaskRuns, group: Group, run: FinishedRun, domain: str) -> list[Cell]:
    values = run.verdicts[domain]
    evaluated = run.evaluations.get(run.steps, {}) if run.metric == "accuracy" else {}
    return [
        task.source_label if domain == task.source else domain,
        group.label,
        run.seed,
        next((n.removeprefix(PREFIX) for n in values if n.startswith(PREFIX)), "-"),
        _measured(values, "predicted_accuracy"),
        _interval(values),
        _measured(evaluated, domain),
        f"{values['p_value']:.2g}" if "p_value" in values else "-",
        _ratio(values),
    ]


def _measured(values: Mapping[str, float], name: str) -> Cell:
    return Measurement.of([values[name]]) if name in values else "-"


def _interval(values: Mapping[str, float]) -> str:
    if "predicted_low" not in values or "predicted_high" not in values:
        return "-"
    return f"{percent(values['predicted_low'])} to {percent(values['predicted_high'])}"


def _ratio(values: Mapping[str, float]) -> str:
    score, threshold = values.get("score"), values.get("threshold")
    return f"{score / threshold:.2f}" if score is not None and threshold else "-"
