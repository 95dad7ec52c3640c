"""Search for settings: train trials, prune the worse half early, and write the best settings.

study.db      the study of Optuna; a search that was killed goes on from it
best.toml     the best settings, for `unseen train --config` and `unseen bench`
trials.json   every configuration that was tried
table.md      the same as a table
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unseen.api import Method, Task
from unseen.checks import check_int
from unseen.errors import UnseenError, naming
from unseen.experiments.runners.jobs import Job, run_jobs
from unseen.experiments.runners.local import LocalRunner
from unseen.experiments.tuning.outputs import write_outputs
from unseen.experiments.tuning.shifts import ShiftedSource, tuning_task, tuning_word
from unseen.experiments.tuning.space import corners, distributions, read_space, settings_from
from unseen.experiments.tuning.study import (
    ERROR,
    REPORTED,
    SHIFTS,
    Search,
    counted,
    load_optuna,
)
from unseen.files import locked
from unseen.methods import method_named
from unseen.report.units import is_error
from unseen.schema import merge
from unseen.tasks import task_named
from unseen.training.config import resolve
from unseen.training.identity import check_seed
from unseen.training.progress import GridProgress, RunState, format_metrics
from unseen.training.train import train

REPORTS = 5  # evaluations of a trial, the final one included; the others can prune it
STATES = {"RUNNING": "running", "COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}


def tune(
    word: str,
    space: Path,
    out: Path,
    *,
    trials: int = 40,
    method: str | None = None,
    settings: Mapping[str, Any] | None = None,
    shifts: str | None = None,
    samples: int = 200,
    seed: int = 0,
    workers: int = 1,
    quiet: bool = False,
) -> dict[str, Any]:
    """Search for settings of a method on synthetic shifts of a task's source.

    Args:
        word: a task as on the command line.
        space: TOML file with the ranges and choices.
        trials: configurations to try, those of an earlier call included.
        shifts: a tuning twin, or "generic"; by default the task's twin if it has one.
        samples: of each shift.
    """
    check_int("trials", trials, 1), check_int("samples", samples, 2), check_seed(seed)
    content, parameters = read_space(space)
    trained, on_targets = tuning_word(word, shifts)
    task, name = task_named(word), method or content.method or "uncertainty_guided"
    fixed = merge(content.set, settings or {})
    facts: dict[str, Any] = {
        "task": word,
        "trained_on": trained,
        "on_targets": on_targets,
        "method": name,
        "preset": content.preset,
        "set": fixed,
        "space": content.space,
        "metric": task.metric,
        "less_is_better": is_error(task.metric),
        "samples": samples,
        "seed": seed,
    }
    for drawn in [{}, *corners(parameters)]:  # before any training
        _check_settings(task, name, content.preset, settings_from(fixed, drawn), space)
    search = Search(out, facts)
    load_optuna()
    with locked(out):
        out.mkdir(parents=True, exist_ok=True)
        study = search.open()
        search.release_interrupted(study, parameters)
        failed = _run_workers(search, space, trials, workers, quiet)
        return {**write_outputs(search, study), "wanted": trials, "failed_workers": failed}


def _check_settings(
    task: Task, method: str, preset: str, settings: Mapping[str, Any], space: Path
) -> None:
    """Raise unless a method can be made with these settings: some are checked only there."""
    kind = method_named(method)
    chosen = resolve(task, kind, preset, settings, str(space))
    with naming(str(space)):
        kind(task.model(**chosen.model), **chosen.method)


def _run_workers(
    search: Search, space: Path, trials: int, workers: int, quiet: bool
) -> dict[str, str]:
    runner = LocalRunner(workers)
    jobs = [
        Job(
            f"worker {number}",
            _work,
            (search, space.absolute(), trials),
            search.folder / f"worker{number}.log",
            lambda: True,
        )
        for number in range(1, workers + 1)
    ]
    study = search.open()
    with GridProgress(f"tune {search.facts['task']}", quiet) as display:
        return run_jobs(jobs, runner, lambda: display.show(_states(search, study, trials)))


def _states(search: Search, study: Any, trials: int) -> list[RunState]:
    states = []
    for trial in counted(study):
        reports = trial.intermediate_values
        message = str(trial.user_attrs.get(ERROR, "")) or format_metrics(
            {search.facts["metric"]: next(reversed(reports.values()))} if reports else {}
        )
        state = STATES.get(trial.state.name, "waiting")
        states.append(RunState(f"trial {trial.number}", state, len(reports), REPORTS, message))
    waiting = trials - len(states)
    return [*states, *(RunState("next", "waiting", 0, REPORTS, "") for _ in range(waiting))]


def _work(search: Search, space: Path, trials: int) -> None:
    """Train trials until there are enough; several processes do this at a time."""
    study = search.open()
    _, parameters = read_space(space)
    drawn_from = distributions(parameters)
    task = tuning_task(search.facts["trained_on"], search.facts["on_targets"])
    shifted = ShiftedSource.of(task, search.facts["on_targets"], search.facts["samples"])
    while (trial := search.next_trial(study, drawn_from, trials)) is not None:
        _run_trial(search, study, trial, task, shifted)


def _run_trial(search: Search, study: Any, trial: Any, task: Task, shifted: ShiftedSource) -> None:
    """Train and measure one trial; a failure is recorded and does not stop the search."""
    optuna = load_optuna()
    try:
        value = _value(search, trial, task, shifted)
        study.tell(trial, value)
    except optuna.TrialPruned:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    except UnseenError as error:
        trial.set_user_attr(ERROR, str(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    search.discard_run(trial)


def _value(search: Search, trial: Any, task: Task, shifted: ShiftedSource) -> float:
    facts = search.facts
    settings = settings_from(facts["set"], trial.params)
    loop = resolve(task, method_named(facts["method"]), facts["preset"], settings).loop
    every = max(1, -(-loop.steps // REPORTS)) if loop.epochs is None else loop.checkpoint_every
    reported = {int(n): v for n, v in trial.user_attrs.get(REPORTED, {}).items()}
    for number, value in reported.items():  # before it was interrupted
        trial.report(value, number)

    def report(step: int, steps: int, net: Method) -> None:
        number = step * REPORTS // steps
        if number in (0, REPORTS):
            return
        if number not in reported:
            reported[number] = shifted.measure(net, task.metric, task.ignore_label)["average"]
            trial.report(reported[number], number)
        if trial.should_prune():
            raise load_optuna().TrialPruned

    run = train(
        task,
        facts["method"],
        search.trial_folder(trial),
        preset=facts["preset"],
        overrides=merge(settings, {"checkpoint_every": every}),
        seed=facts["seed"],
        resume=True,
        progress=False,
        after_checkpoint=report,
        task_word=facts["trained_on"],
    )
    measured = shifted.measure(run.load(task), task.metric, task.ignore_label)
    trial.set_user_attr(SHIFTS, measured)
    trial.report(measured["average"], REPORTS)
    return measured["average"]
