"""The tables of a report: results beside the paper's, ablations, what every run was told and cost."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

from unseen.report.figures.curves import GRADED
from unseen.report.figures.domains import MEANING, MOST_DOMAINS, ablations
from unseen.report.groups import Group, TaskRuns
from unseen.report.paper import ablation_figure, paper_figure
from unseen.report.runs import FinishedRun
from unseen.report.tables.table import Cell, Figure, Table


def figure(task: TaskRuns, group: Group, domains: Sequence[str]) -> Figure:
    """A group's figure for a domain or an average, with the paper's where the group is the method as it is."""
    every = len(domains) == len(task.domains) and len(domains) > 1
    reported = (
        None
        if group.differs
        else paper_figure(task.task, task.variant, group.method, domains, every)
    )
    return Figure.of(group.over(domains), reported)


def best_marked(rows: list[list[Cell]]) -> list[list[Cell]]:
    """The same rows with the best figure of each column marked, where there is something to choose."""
    if len(rows) < 2:
        return rows
    columns = [list(column) for column in zip(*rows, strict=True)]
    for column in columns:
        figures = [cell for cell in column if isinstance(cell, Figure)]
        if len(figures) == len(column):
            top = max(round(cell.mean, 1) for cell in figures)
            column[:] = [replace(cell, best=round(cell.mean, 1) == top) for cell in figures]
    return [list(row) for row in zip(*columns, strict=True)]


def results(task: TaskRuns) -> list[Table]:
    """One row for each method and setting, one column for each domain; averages where there are many."""
    shown: dict[str, list[str]] = {f"{task.source} (source)": [task.source]}
    graded = [GRADED.fullmatch(d) for d in task.domains]
    many = len(task.domains) > MOST_DOMAINS
    if many and all(graded):
        for level in sorted({int(m[2]) for m in graded if m}):
            shown[f"severity {level}"] = [d for d in task.domains if d.endswith(f"/{level}")]
    elif not many:
        shown |= {d: [d] for d in task.domains}
    shown["average, unseen"] = task.domains
    rows: list[list[Cell]] = [
        [
            g.label,
            *(figure(task, g, domains) for domains in shown.values()),
            g.runs[0].steps,
            len(g.runs),
        ]
        for g in task.groups
    ]
    title = f"Results: {task.metric}, %"
    header = ["method", *shown, "updates", "seeds"]
    tables = [Table(title, header, best_marked(rows), _results_caption(task), task.title)]
    if many:
        tables.append(_by_kind(task, all(graded)))
    return tables


def _results_caption(task: TaskRuns) -> str:
    told = [
        f"Every model learned from {task.source} alone and was then examined on domains it had never seen; figures are of the "
        "last "
        "checkpoint, mean ± standard deviation over seeds; the best of a column is bold."
    ]
    plain = [g for g in task.groups if not g.differs and len(task.of(g.method)) > 1]
    if plain:
        told.append(
            "A method's name alone stands for its plainest settings here; other rows name what differs."
        )
    reported = [
        paper_figure(task.task, task.variant, g.method, task.domains, True)
        for g in task.groups
        if not g.differs
    ]
    if any(reported):
        told.append("The small line is what the paper reports, and in brackets ours minus that.")
        if remarks := {r.remark for r in reported if r and r.remark}:
            told.append(f"The paper's average is {', '.join(sorted(remarks))}.")
    return " ".join(told)


def _by_kind(task: TaskRuns, graded: bool) -> Table:
    """A row for each corruption, or for each domain, and a column for each method."""
    kinds = {d: [d] for d in task.domains}
    if graded:
        names = dict.fromkeys(d.rpartition("/")[0] for d in task.domains)
        kinds = {name: [d for d in task.domains if d.rpartition("/")[0] == name] for name in names}
    rows: list[list[Cell]] = [
        [name, *(figure(task, g, domains) for g in task.groups)] for name, domains in kinds.items()
    ]
    word = "corruption" if graded else "domain"
    told = "The mean over all severities of each corruption." if graded else ""
    return Table(
        f"By {word}: {task.metric}, %",
        [word, *(g.label for g in task.groups)],
        rows,
        told,
        task.title,
    )


def ablation_table(task: TaskRuns) -> Table | None:
    found = ablations(task)
    if not found:
        return None
    rows: list[list[Cell]] = [
        [
            name,
            MEANING[name],
            Figure.of(group.over(domains), ablation_figure(task.task, name)),
            len(group.runs),
        ]
        for name, group, domains in found
    ]
    remark = next(
        (r.remark for name, _, _ in found if (r := ablation_figure(task.task, name)) and r.remark),
        "",
    )
    told = (
        f"The small line is what the paper reports, {remark}, and in brackets ours minus that."
        if remark
        else ""
    )
    return Table(
        "Ablations: figures",
        ["setting", "what it means", f"mean {task.metric}, unseen, %", "seeds"],
        rows,
        told,
        task.title,
    )


def overview(tasks: Sequence[TaskRuns]) -> Table:
    """One row for each task: how plain training and the best method did."""
    rows: list[list[Cell]] = []
    for task in tasks:
        best = max(task.groups, key=lambda g: g.mean_and_std(task.domains)[0])
        plain = next((g for g in task.of("erm") if not g.differs), None)
        domains = (
            ", ".join(task.domains) if len(task.domains) <= 5 else f"{len(task.domains)} domains"
        )
        runs = sum(len(g.runs) for g in task.groups)
        rows.append([
            task.title, task.source, domains, task.metric, Figure.of(plain.over(task.domains)) if plain else "-",
            Figure.of(best.over(task.domains)), best.label, runs,
        ])  # fmt: skip
    header = [
        "task",
        "trained on",
        "never seen",
        "measured by",
        "plain training (erm)",
        "best here",
        "which is",
        "runs",
    ]
    told = "Averages over the unseen domains, in percent, mean ± standard deviation over seeds."
    return Table("At a glance", header, rows, told)


def runs_table(tasks: Sequence[TaskRuns]) -> Table:
    """What every run cost and where it came from."""
    rows: list[list[Cell]] = []
    for task in tasks:
        for group in task.groups:
            for run in group.runs:
                config = run.config
                device = f"{config.get('device', '?')}, {_threads(config.get('threads'))}"
                rows.append([
                    str(config["run"]), task.title, group.label, run.seed, run.steps, duration(run.seconds),
                    memory(config.get("peak_memory")), str(config.get("commit") or "not recorded"), device,
                    ", ".join(f"{name} {version}" for name, version in config.get("versions", {}).items()),
                ])  # fmt: skip
    header = [
        "run",
        "task",
        "method",
        "seed",
        "updates",
        "training, s",
        "peak memory, MB",
        "commit",
        "device",
        "versions",
    ]
    told = "Seconds are of training alone, on whatever else the machine was doing; memory is the most the process held at once."
    return Table("All runs", header, rows, told)


def _threads(count: int | None) -> str:
    return "threads not recorded" if count is None else f"{count} thread{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def memory(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.0f}"


def command_of(run: FinishedRun) -> str:
    """The command that trains this very run again, every setting spelled out."""
    config = run.config
    told = {**config["loop"], **config.get("model", {}), **config["settings"]}
    words = [
        "unseen",
        "train",
        str(config.get("task_word", config["task"])),
        "--method",
        config["method"],
    ]
    words += ["--preset", str(config["preset"])] if "preset" in config else []
    words += ["--seed", str(run.seed), "--out", f"runs/{config['run']}"]
    for name, value in told.items():
        plain = (
            isinstance(value, str)
            and value not in ("none", "true", "false")
            and value.isidentifier()
        )
        words += ["--set", f"{name}={value if plain else json.dumps(value)}"]
    return shlex.join(words)
