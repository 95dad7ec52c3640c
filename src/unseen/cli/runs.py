"""Commands on one run: train, evaluate, score, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from unseen.api import Task
from unseen.cli.options import (
    Count,
    CountOrNone,
    Device,
    Flag,
    Json,
    RunFolder,
    Seed,
    Settings,
    TaskWord,
    emit,
    say,
)
from unseen.errors import UnseenError
from unseen.experiments import evaluate as exam
from unseen.experiments.segmentation_images import pictures as draw_pictures
from unseen.report.tables import percent, show
from unseen.tasks import task_named
from unseen.training.config import parse
from unseen.training.run import Run
from unseen.training.run import train as train_run

TABLE_WIDTH = 4  # domains beside each other: more would not fit a terminal of 80 columns


def attach(app: App) -> None:
    for command in (train, evaluate, score, pictures):
        app.command(command)


def train(
    task: str,
    *,
    out: Path,
    method: str = "uncertainty_guided",
    preset: str = "fast",
    augment: str | None = None,
    set_: Settings = None,
    seed: Seed = 0,
    resume: Annotated[bool, Flag] = False,
    tensorboard: Annotated[bool, Flag] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Train a method on a task's source, into a run folder.

    Parameters
    ----------
    task
        A name from `unseen tasks`, with /variant where it has some, or your own as package.module:function.
    out
        The run's folder; new, or one to go on with.
    method
        A name from `unseen methods`.
    preset
        Named settings of the task: fast, reference or paper.
    augment
        A batch transform before every step: cutout, autoaugment, randconv or flip_crop; several with commas between.
    resume
        Go on with the run in --out; start it if there is none, do nothing if it is finished.
    tensorboard
        Write the losses, the source's accuracy and whatever else the method logs as TensorBoard curves too.
    """
    overrides = parse(set_ or []) | ({} if augment is None else parse([f"augment={augment}"]))
    run = train_run(
        task_named(task), method, out, preset=preset, overrides=overrides, seed=seed, resume=resume, device=device,
        tensorboard=tensorboard, task_word=task,
    )  # fmt: skip
    config = run.config
    value = next((r["value"] for r in reversed(run.records()) if r["split"] == "val"), None)
    if value is None:
        raise UnseenError(f"{run.folder}/records.jsonl has lost its records: train the run again")
    result = {
        "run": str(run.folder),
        "task": config["task"],
        "variant": config.get("variant", "default"),
        **{k: config[k] for k in ("method", "preset", "seed")},
        "source_val": value,
    }
    if not emit(result, json_):
        show(
            f"{_title(result)} {config['method']}",
            ["", ""],
            [["run", run.folder], ["held-out source", percent(value)]],
        )
        own = f" --task {task}" if ":" in task else ""
        print(f"next: unseen evaluate {run.folder}{own}")
        if tensorboard:
            print(f"curves: tensorboard --logdir {run.folder}")


def evaluate(
    run: RunFolder,
    *,
    samples: CountOrNone = None,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """What a run is worth on every unseen domain, and on the held-out source.

    Parameters
    ----------
    samples
        At most so many random samples of each domain; all of them if it is left out.
    """
    at = Run(run)
    result = exam.evaluate(at, task_of(at, task), device, samples=samples)
    if emit(result, json_):
        return
    metric = next(k for k in result["source"] if k not in ("name", "n", "classes"))
    rows = [
        [
            f"{result['source']['name']} (source)",
            percent(result["source"][metric]),
            result["source"]["n"],
        ]
    ]
    adapted = result.get("adapted_to")
    rows += [
        [f"{d} (adapted to)" if d == adapted else d, percent(f[metric]), f["n"]]
        for d, f in result["domains"].items()
    ]
    rows.append(["average, unseen", _share(result["average"]), ""])
    show(
        f"{_title(result)} {result['method']} seed {result['seed']}", ["domain", metric, "n"], rows
    )
    if "classes" in result["source"]:
        domains = {result["source"]["name"]: result["source"], **result["domains"]}
        names = list(result["source"]["classes"])
        for first in range(0, len(domains), TABLE_WIDTH):
            shown = dict(list(domains.items())[first : first + TABLE_WIDTH])
            of_class = [[n, *(_share(d["classes"][n]) for d in shown.values())] for n in names]
            show("intersection over union of each class", ["class", *shown], of_class)


def _title(of: dict[str, Any]) -> str:
    """A task with the variant that a run is of."""
    variant = of.get("variant", "default")
    return of["task"] if variant == "default" else f"{of['task']}/{variant}"


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def score(
    run: RunFolder,
    *,
    domain: str,
    batch: CountOrNone = None,
    false_alarm_rate: float = 0.01,
    per_sample: Path | None = None,
    seed: Seed = 0,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """How far a domain is from the source, without labels, and whether to raise the alarm.

    Parameters
    ----------
    domain
        A domain of the task; "source" is the held-out source.
    batch
        Score that many random samples instead of all; the threshold is for that many.
    false_alarm_rate
        How often a batch of the source may raise the alarm.
    per_sample
        A CSV file for the score of every single sample.
    """
    at = Run(run)
    result = exam.score(
        at, task_of(at, task), domain, batch=batch, false_alarm_rate=false_alarm_rate, seed=seed, per_sample=per_sample,
        device=device,
    )  # fmt: skip
    if result["fallback"]:
        say(f"this run has no learned sigma; the score is a fallback: {result['score_name']}")
    if not emit(result, json_):
        shown = {**result, "interval": " to ".join(f"{end:.4f}" for end in result["interval"])}
        rows = [[k, f"{v:.4f}" if isinstance(v, float) else v] for k, v in shown.items()]
        show("ALARM" if result["alarm"] else "no alarm", ["", ""], rows)


def pictures(
    *runs: RunFolder,
    domain: str,
    out: Path,
    frames: Count = 4,
    task: TaskWord = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Draw scenes of a domain beside their truth and what each run makes of them; for tasks with a class for every pixel.

    Parameters
    ----------
    domain
        A domain of the task.
    out
        The PNG to write.
    frames
        How many scenes, evenly spaced.
    """
    if not runs:
        raise UnseenError(
            "name at least one finished run: unseen pictures RUN [RUN ...] --domain dusk --out scenes.png"
        )
    made = [Run(folder) for folder in runs]
    result = draw_pictures(made, task_of(made[0], task), domain, out, frames=frames, device=device)
    if not emit(result, json_):
        print(f"{result['picture']}: {domain}, {', '.join(result['runs'])}")


def task_of(run: Run, named: str | None) -> Task:
    """The run's task. One of the user's own is imported only if they name it on this command."""
    name = str(run.config.get("task_word", run.config.get("task")))
    if named is None and ":" in name:
        raise UnseenError(
            f"{run.folder} was trained on {name}, a task of your own: name it, --task {name}"
        )
    return task_named(name if named is None else named)
