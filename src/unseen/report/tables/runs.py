"""Tables of the report page: results, ablations, domain scores, the list of runs."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

from unseen.report.ablations import ABLATIONS, find_ablations
from unseen.report.groups import Group, TaskRuns
from unseen.report.paper import ablation_value, paper_value
from unseen.report.runs import DOMAIN_SCORE, SCORE_THRESHOLD, FinishedRun
from unseen.report.severities import MAX_DOMAINS, SEVERITY
from unseen.report.statistics import mean_and_std
from unseen.report.tables.table import Cell, Measurement, Table


def measure(task: TaskRuns, group: Group, domains: Sequence[str]) -> Measurement:
    """Return a group's value for a domain or an average, beside the paper's if settings match."""
    every = len(domains) == len(task.domains) and len(domains) > 1
    paper = None
    if not group.changes:
        paper = paper_value(task.task, task.variant, group.method, domains, every)
    return Measurement.of(group.averages(domains), paper, task.scale)


def mark_best(rows: list[list[Cell]], less: bool = False) -> list[list[Cell]]:
    """Mark the best measurement of each column, if there are several rows."""
    if len(rows) < 2:
        return rows
    columns = [list(column) for column in zip(*rows, strict=True)]
    for column in columns:
        cells = [cell for cell in column if isinstance(cell, Measurement)]
        if len(cells) == len(column):
            shown = [float(f"{cell.mean:{cell.digits}}") for cell in cells]
            top = min(shown) if less else max(shown)
            column[:] = [
                replace(c, best=value == top) for c, value in zip(cells, shown, strict=True)
            ]
    return [list(row) for row in zip(*columns, strict=True)]


def results_tables(task: TaskRuns) -> list[Table]:
    """Return a row for each group and a column for each domain; averages if there are many."""
    columns: dict[str, list[str]] = {task.source_label: [task.source]}
    graded = [SEVERITY.fullmatch(d) for d in task.domains]
    many = len(task.domains) > MAX_DOMAINS
    if many and all(graded):
        for level in sorted({int(m[2]) for m in graded if m}):
            columns[f"severity {level}"] = [d for d in task.domains if d.endswith(f"/{level}")]
    elif not many:
        columns |= {d: [d] for d in task.domains}
    if task.domains:
        columns["average, unseen"] = task.domains
    rows: list[list[Cell]] = [
        [
            g.label,
            *(measure(task, g, domains) for domains in columns.values()),
            g.runs[0].steps,
            len(g.runs),
        ]
        for g in task.groups
    ]
    title = task.with_unit(f"Results: {task.metric}")
    header = ["method", *columns, "updates", "seeds"]
    tables = [
        Table(
            title, header, mark_best(rows, task.less_is_better), _results_caption(task), task.title
        )
    ]
    if many:
        tables.append(_table_by_corruption(task, all(graded)))
    return tables


def _results_caption(task: TaskRuns) -> str:
    if not task.domains:
        return (
            "Held-out source data only: no run was evaluated on unseen domains yet. "
            "Run “unseen evaluate” on each run folder, then “unseen report” again."
        )
    sentences = [
        "Models are trained on the source domain only. Values are of the last checkpoint, mean ± "
        "standard deviation over seeds. Bold: best of the column."
    ]
    if any(not g.changes and len(task.of(g.method)) > 1 for g in task.groups):
        sentences.append("Rows with settings differ from the method's base row in those settings.")
    values = [
        paper_value(task.task, task.variant, g.method, task.domains, True)
        for g in task.groups
        if not g.changes
    ]
    if any(values):
        sentences.append("Small: value in the paper (ours minus the paper's).")
        if remarks := {value.remark for value in values if value and value.remark}:
            sentences.append(f"The paper's average is {', '.join(sorted(remarks))}.")
    return " ".join(sentences)


def _table_by_corruption(task: TaskRuns, graded: bool) -> Table:
    """Return a row for each corruption, or for each domain, and a column for each group."""
    rows_by_name = {d: [d] for d in task.domains}
    if graded:
        names = dict.fromkeys(d.rpartition("/")[0] for d in task.domains)
        rows_by_name = {n: [d for d in task.domains if d.rpartition("/")[0] == n] for n in names}
    rows: list[list[Cell]] = [
        [name, *(measure(task, g, domains) for g in task.groups)]
        for name, domains in rows_by_name.items()
    ]
    kind = "corruption" if graded else "domain"
    caption = "Mean over the severities of each corruption." if graded else ""
    header = [kind, *(g.label for g in task.groups)]
    return Table(task.with_unit(f"By {kind}: {task.metric}"), header, rows, caption, task.title)


def ablation_table(task: TaskRuns) -> Table | None:
    """Return a row for each ablation of the paper that there are runs of."""
    ablations = find_ablations(task)
    if not ablations:
        return None
    values = {name: ablation_value(task.task, name) for name, _, _ in ablations}
    rows: list[list[Cell]] = [
        [
            name,
            ABLATIONS[name],
            Measurement.of(group.averages(domains), values[name], task.scale),
            len(group.runs),
        ]
        for name, group, domains in ablations
    ]
    remark = next((value.remark for value in values.values() if value and value.remark), "")
    caption = f"Small: value in the paper, {remark} (ours minus the paper's)." if remark else ""
    header = ["ablation", "change", task.with_unit(f"mean {task.metric}, unseen"), "seeds"]
    return Table("Ablations: values", header, rows, caption, task.title)


def domain_score_table(task: TaskRuns) -> Table | None:
    """Return the domain scores that `unseen evaluate` recorded, beside metric and threshold."""
    runs = [run for group in task.groups for run in group.runs if run.scores(DOMAIN_SCORE)]
    if not runs:
        return None
    rows: list[list[Cell]] = []
    for group in task.groups:
        scored = [run for run in group.runs if run in runs]
        for domain in [task.source, *task.domains]:
            scores = [run.scores(DOMAIN_SCORE).get(domain) for run in scored]
            known = [score for score in scores if score is not None]
            if not known:
                continue
            thresholds = [run.scores(SCORE_THRESHOLD).get(domain) for run in scored]
            alarms = [
                s > t
                for s, t in zip(scores, thresholds, strict=True)
                if s is not None and t is not None
            ]
            limits = [t for t in thresholds if t is not None]
            rows.append([
                group.label,
                task.source_label if domain == task.source else domain,
                Measurement.of([run.values[domain] for run in scored], scale=task.scale),
                f"{mean_and_std(known)[0]:.3g}",
                f"{mean_and_std(limits)[0]:.3g}" if limits else "-",
                f"{sum(alarms)} of {len(alarms)}" if alarms else "-",
            ])  # fmt: skip
    header = [
        "method",
        "domain",
        task.with_unit(task.metric),
        "domain score",
        "threshold",
        "score alarms",
    ]
    caption = (
        "The domain score needs no labels; it is high for domains unlike the source. A score "
        "alarm is a score above the threshold, which the source exceeds with a probability of 1 %; "
        "a verdict judges the accuracy too."
    )
    return Table("Domain scores", header, rows, caption, task.title)


def overview_table(tasks: Sequence[TaskRuns]) -> Table:
    """Return a row for each task with the averages of ERM and of the best method."""
    rows: list[list[Cell]] = []
    for task in tasks:
        choose = min if task.less_is_better else max
        best = choose(task.groups, key=lambda g: g.mean_and_std(task.ranking_domains)[0])
        erm = next((g for g in task.of("erm") if not g.changes), None)
        names = task.domains if len(task.domains) <= 5 else [f"{len(task.domains)} domains"]
        rows.append([
            task.title, task.source, ", ".join(names) or "not evaluated", task.metric,
            Measurement.of(erm.averages(task.ranking_domains), scale=task.scale) if erm else "-",
            Measurement.of(best.averages(task.ranking_domains), scale=task.scale), best.label,
            sum(len(g.runs) for g in task.groups),
        ])  # fmt: skip
    header = ["task", "source", "unseen domains", "metric", "ERM", "best", "best method", "runs"]
    caption = (
        "Averages over the unseen domains, fractions in percent (of held-out source data if not "
        "evaluated), "
        "mean ± standard deviation over seeds. ERM: empirical risk minimization, standard training."
    )
    return Table("Overview", header, rows, caption)


def runs_table(tasks: Sequence[TaskRuns]) -> Table:
    """Return time, memory and origin of every run."""
    rows: list[list[Cell]] = []
    for task in tasks:
        for group in task.groups:
            for run in group.runs:
                config = run.config
                versions = config.get("versions", {}).items()
                rows.append([
                    str(config["run"]), task.title, group.label, run.seed, run.steps,
                    _format_seconds(run.seconds), _format_megabytes(config.get("peak_memory")),
                    str(config.get("commit") or "not recorded"), str(config.get("device", "?")),
                    str(config.get("threads", "not recorded")),
                    ", ".join(f"{name} {version}" for name, version in versions),
                ])  # fmt: skip
    header = [
        "run", "task", "method", "seed", "updates", "time, s", "memory, MB", "commit", "device",
        "threads", "versions",
    ]  # fmt: skip
    caption = (
        "Time is training time under the machine's load at the time; memory is the peak of the "
        "process. Device, threads and versions are in the CSV and in the list below."
    )
    return Table("All runs", header, rows, caption, details=["device", "threads", "versions"])


def _format_seconds(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def _format_megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.0f}"


def command_of(run: FinishedRun) -> str:
    """Return the command that trains the run again, with every setting."""
    config = run.config
    settings = {**config["loop"], **config.get("model", {}), **config["settings"]}
    task = str(config.get("task_word", config["task"]))
    words = ["unseen", "train", task, "--method", config["method"]]
    words += ["--preset", str(config["preset"])] if "preset" in config else []
    words += ["--seed", str(run.seed), "--out", f"runs/{config['run']}"]
    for name, value in settings.items():
        reserved = value in ("none", "true", "false")
        is_word = isinstance(value, str) and not reserved and value.isidentifier()
        words += ["--set", f"{name}={value if is_word else json.dumps(value)}"]
    return shlex.join(words)
