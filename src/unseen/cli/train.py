"""`unseen train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from unseen.api import Task
from unseen.cli.options import Device, Flag, Json, Seed, Settings, emit, task_title
from unseen.cli.train_data import Network, Reading, training_task_word
from unseen.errors import UnseenError
from unseen.experiments.training_config import TrainingConfig, read_training_config
from unseen.report.tables import show
from unseen.report.units import format_value
from unseen.schema import merge, parse_settings
from unseen.tasks import task_named
from unseen.training import train as training
from unseen.training.group import process_group
from unseen.training.loggers.registry import make_loggers
from unseen.training.recipes import recipe_named


def train(
    task: str | None = None,
    *,
    out: Path,
    network: Network = None,
    reading: Reading = None,
    config: Path | None = None,
    method: str | None = None,
    preset: str | None = None,
    recipe: str | None = None,
    augment: str | None = None,
    set_: Settings = None,
    seed: Seed = 0,
    resume: Annotated[bool, Flag] = False,
    logger: str | None = None,
    tensorboard: Annotated[bool, Flag] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Train a method on the source domain of a task, or of your own data, and save it as a run.

    unseen train --data photos/ --out runs/mine

    torchrun --nproc_per_node 2 -m unseen train digits --out runs/two

    Parameters
    ----------
    task
        A name from `unseen tasks`, optionally with /variant, or your own task as
        package.module:function. Leave it out with --data.
    out
        Folder of the run; must be new or empty unless --resume is given.
    config
        TOML file with a task, a method and settings, as `unseen tune` writes it: a grid of one row.
        What else is given on the command line has priority.
    method
        A name from `unseen methods`, or your own class as package.module:Class
        (default: that of --config, of the recipe or of the preset, else uncertainty_guided).
    preset
        A named group of settings of the task: fast, best, reference or paper (default: fast).
    recipe
        A name from `unseen recipes`: settings for a kind of data, which win over the preset's.
    augment
        Batch transforms applied before every step, such as affine:strength=0.5,randconv. With
        --set views=2 a step trains on the batch and on an augmented copy of it.
    resume
        Continue the run in --out; start it if there is none, do nothing if it is finished.
    logger
        Where else to show losses, source accuracy and what else the method logs: tensorboard, wandb
        or mlflow; separate several with commas.
    tensorboard
        The same as --logger tensorboard.
    """
    chosen = TrainingConfig() if config is None else read_training_config(config)
    if task is None and (network is None or network.data is None):
        task = chosen.task
    method, preset = method or chosen.method, preset or chosen.preset
    word = training_task_word(task, network, reading)
    named = [] if augment is None else [f"augment={augment}"]
    if network is not None and network.pretrained is not None:
        named.append(f"pretrained={network.pretrained.absolute()}")
    with process_group(device) as leads:  # of torchrun, if it started this command
        made = task_named(word)
        if method is None and recipe is not None:
            method = recipe_named(recipe).method
        method = method or made.presets.get(preset or "fast", {}).get("method")
        method = method or "uncertainty_guided"
        loggers = make_loggers(logger if leads else None, out, tensorboard=tensorboard and leads)
        run = training.train(
            made,
            method,
            out,
            preset=preset,
            recipe=recipe,
            overrides=merge(chosen.set, parse_settings([*(set_ or []), *named])),
            seed=seed,
            resume=resume,
            device=device,
            logger=loggers.loggers,
            task_word=word,
        )
    if not leads:
        return
    recorded = run.config
    last = next((r for r in reversed(run.records()) if r["split"] == "val"), None)
    if last is None:
        raise UnseenError(f"{run.folder}/records.jsonl has no records: train the run again")
    value, metric = last["value"], last["metric"]
    result = {
        "run": str(run.folder),
        "task": recorded["task"],
        "variant": recorded.get("variant", "default"),
        **{k: recorded[k] for k in ("method", "preset", "seed")},
        "source_val": value,
    }
    if emit(result, json_):
        return
    rows: list[list[object]] = [
        ["run", run.folder],
        [f"held-out source, {metric}", format_value(value, metric)],
    ]
    show(f"{task_title(result)} {recorded['method']}", ["", ""], rows)
    own = f" --method {method}" if ":" in method else ""
    print(f"next: {_next(run.folder, made, word)}{own}")
    for hint in loggers.hints():
        print(f"curves: {hint}")


def _next(run: Path, task: Task, word: str) -> str:
    """Return the command that follows."""
    if not task.record:
        return f"unseen evaluate {run}{f' --task {word}' if ':' in word else ''}"
    trust = " --trust-code" if task.record["data"]["network"] else ""
    if not task.targets:
        return f"unseen score {run} --data ANOTHER_FOLDER{trust}"
    return f"unseen evaluate {run}{trust}"
