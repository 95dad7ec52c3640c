"""Train a model on a loader, in memory."""

from __future__ import annotations

import logging
import math
import time
import typing
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, Method
from unseen.augmentations import Augment, Views
from unseen.checks import check_int, check_path
from unseen.detection.sampling import loader_length
from unseen.detection.scoring import ScoreAt
from unseen.errors import UnseenError
from unseen.methods import method_named
from unseen.nn.batch import batches_from, iterate
from unseen.nn.inputs import check_labels, describe_type
from unseen.nn.precision import Amp
from unseen.nn.wrapper import bare_model
from unseen.schema import plain, validate
from unseen.training.config import LoopSettings
from unseen.training.distributed import Processes, join
from unseen.training.fit_checkpoint import FitCheckpoint
from unseen.training.group import first_speaks
from unseen.training.history import History
from unseen.training.loggers.logger import Training
from unseen.training.loggers.registry import AnyLogger, make_loggers
from unseen.training.loop import LR_SCHEDULES, Schedule, training_steps
from unseen.training.machine import pick_device
from unseen.training.progress import TrainingProgress
from unseen.training.recipes import recipe_named
from unseen.training.repeated import RepeatedLoader
from unseen.training.shards import Shards, own_batches
from unseen.training.steadiness import Steadiness
from unseen.training.updates import Updates, train_mode

log = logging.getLogger("unseen")

PROBE = 128  # samples at most whose accuracy progress shows
FEW = 8  # samples that show which layers a model runs
PROBE_EVERY = 50  # steps between two looks at it: about 1 % of the time of standard training

OnStep = Callable[[int, dict[str, float]], object]


@first_speaks()
def fit(
    net: Method | nn.Module,
    loader: Iterable[Any],
    steps: int | None = None,
    *,
    recipe: str | None = None,
    epochs: int | None = None,
    held_out: Iterable[Any] | None = None,
    augment: Augment = None,
    views: int | None = None,
    schedule: Schedule | None = None,
    ball: float | None = None,
    clip: float | None = None,
    ema: float | None = None,
    amp: Amp | None = None,
    microbatch: int | None = None,
    activation_checkpointing: bool = False,
    on_step: OnStep | None = None,
    logger: AnyLogger = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
) -> History:
    """Train on the source, then calibrate the uncertainty score and the alarm.

    Returns the logs of every step; `net` is trained in place, and is `history.net` too.

    Args:
        loader: yields (x, y) or dicts and is iterated as often as needed.
        steps: number of updates.
        epochs: number of passes over the loader, in place of steps.
        recipe: augmentations, views, average and schedule for a kind of data: "image", "text",
            "speech" or "segmentation" (`unseen recipes`). What is given explicitly wins. A bare
            model is trained by the recipe's method; a method keeps its own settings.
        held_out: source data that is not trained on. Without it the alarm is calibrated on training
            data and fires too often.
        augment: transforms the inputs of every batch: a name such as "randconv" or
            "affine:strength=0.5", a table {"name": "affine", "strength": 0.5}, a function, or a
            list of these. A list of lists has one list for each view.
        views: number of views of a batch that a step trains on: 2 for the batch itself and an
            augmented copy, 3 for two augmented copies. Together they are one larger batch.
        schedule: of the learning rates: "constant", "cosine", "linear", or a function from the
            fraction of training that is done to the fraction of the rates that is left.
        ball: largest change of an input value by an adversary, which searches a box of this size
            around the inputs before every step (3 signed gradient steps).
        clip: largest norm of the gradients of each optimizer; larger ones are scaled down.
        ema: decay of an exponential moving average of the weights, such as 0.99. The method has
            the average after training; a second fit goes on from the weights themselves.
        amp: "bf16" or, for CUDA, "fp16": passes of the model in 16 bits.
        microbatch: samples of a process that are in memory at a time. A step adds up the gradients
            of these parts of its batch: the same numbers, except with BatchNorm.
        activation_checkpointing: compute the activations within the blocks of the model again in
            the backward pass, in place of keeping them.
        on_step: called as on_step(step, logs) after every step.
        logger: where else to show the logs: "tensorboard", "wandb", "mlflow", a list of these, or
            of objects of `unseen.training.loggers.Logger`.
        checkpoint: file to save the state of training to.
        checkpoint_every: steps from one checkpoint to the next.
        resume: continue from the checkpoint if there is one, with the same numbers as without the
            interruption. Give the same loader and settings.
    """
    if recipe is not None:
        net, chosen = _follow(recipe, net), recipe_named(recipe).settings
        augment = chosen.get("augment") if augment is None else augment
        views = chosen.get("views") if views is None else views
        schedule = chosen.get("lr_schedule") if schedule is None else schedule
        ball = chosen.get("ball") if ball is None else ball
        clip = chosen.get("clip") if clip is None else clip
        ema = chosen.get("ema") if ema is None else ema
    net = check_method(net)
    for name, data in (("loader", loader), ("held_out", () if held_out is None else held_out)):
        if iterate(data, name) is data:
            raise UnseenError(
                f"{name} can be iterated only once: give a DataLoader or a list of batches"
            )
    if loader_length(held_out) == 0:
        raise UnseenError(
            "held_out is empty: give source data that is not trained on, or leave it out"
        )
    if on_step is not None and not callable(on_step):
        raise UnseenError(
            f"on_step must be a function of step and logs, not {describe_type(on_step)}"
        )
    viewed, total = Views(augment, views), _number_of_steps(loader, steps, epochs)
    values: dict[str, Any] = {
        "steps": total, "ball": ball, "clip": clip, "ema": ema, "amp": amp,
        "microbatch": microbatch, "activation_checkpointing": activation_checkpointing,
    }  # fmt: skip
    loop = validate(LoopSettings, {**values, "checkpoint_every": checkpoint_every}, "fit")
    loggers = make_loggers(logger)
    net.to(pick_device(device))
    file = None if checkpoint is None else check_path("checkpoint", checkpoint)
    if resume and file is None:
        raise UnseenError("resume=True needs the file to continue from: checkpoint=...")
    net.adjust_to(total)
    _build(net, "loader", loader)
    processes = join(net.device)
    source = Shards(loader, processes)
    if isinstance(processes, Processes):
        processes.start(net, {"method": net.name, "checkpoint": checkpoint is not None, **values})
        progress = processes.from_leader(lambda: progress)
    history, batches = History(net), RepeatedLoader(loader, source.set_epoch)
    schedule = "constant" if schedule is None else schedule
    updates = Updates(net, loop, _check_schedule(schedule), processes)
    saved = FitCheckpoint(file, net, updates, history, batches, schedule, viewed)
    first = saved.restore(resume)
    for warning in net.warnings(total - first) if processes.leads else ():
        log.warning(warning)
    train_mode(net)
    held = None if held_out is None else Shards(held_out, processes, "held_out").kept()
    watched = ("loader", source.whole()) if held is None else ("held_out", held)
    steadiness = Steadiness(net, total, history)
    probe = first_batches(*watched, PROBE) if progress or steadiness.step else []
    shown = TrainingProgress(net.name, total, first, quiet=not (progress and processes.leads))
    with updates.running(first) as schedulers, loggers:
        if processes.leads:
            loggers.start(_describe(net, total, file), history.points())
        for step, logs in training_steps(
            updates.step,
            own_batches(batches, source, net.device, viewed),
            shown,
            schedulers,
            weights=net,
            check_at=saved.due_at,
            skipped=lambda: updates.skipped,
        ):
            numbers = _numbers(logs)
            if probe and _is_watched(step, total, steadiness.step, progress):
                name = "accuracy" if net.objective.classifies else "loss"
                with updates.averaged():
                    value = accuracy_on(net, probe) if name == "accuracy" else loss_on(net, probe)
                numbers[f"source_{name}"] = shown.metrics[f"source {name}"] = value
                if step == steadiness.step:
                    steadiness.before = value
                problem = steadiness.warning(value) if step == total else None
                if problem and processes.leads:
                    log.warning(problem)
            history.add(step, numbers)
            if processes.leads:
                loggers.log(history.points(step))
            if saved.due_at(step):
                saved.write(step)
            if on_step is not None:
                on_step(step, numbers)
    updates.finish()
    net.eval()
    if isinstance(processes, Processes):
        processes.share_random_state()
    calibrate(net, source.whole(), held)
    return history


def _follow(recipe: str, net: Any) -> Any:
    """Wrap a bare model in the method of a recipe; a method keeps its own settings."""
    if isinstance(net, Method) or not isinstance(net, nn.Module):
        return net
    kind = method_named(recipe_named(recipe).method)
    given = recipe_named(recipe).of_method(kind.name)
    return kind(net, **{n: v for n, v in given.items() if n in kind.settings_of()})


def _describe(net: Method, steps: int, checkpoint: Path | None) -> Training:
    """Describe a fit for loggers; only one with a checkpoint can be continued."""
    place = uuid.uuid4().hex if checkpoint is None else str(checkpoint.absolute())
    settings = {"method": net.name, "steps": steps, **plain(net.settings())}
    return Training(
        key=uuid.uuid5(uuid.NAMESPACE_URL, place).hex[:16],
        title=f"{net.name} {time.strftime('%Y-%m-%d %H:%M:%S')}",
        group="unseen.fit",
        settings=settings,
    )


def _build(net: Method, name: str, loader: Iterable[Any]) -> None:
    """Find the layers that were left open, before an optimizer is asked for."""
    if not net.is_built:
        for batch in first_batches(name, loader, FEW):
            net.prepare(batch.to(net.device))


def _number_of_steps(loader: Iterable[Any], steps: int | None, epochs: int | None) -> int:
    if epochs is None:
        if steps is None:
            raise UnseenError(
                "steps is missing: give the number of updates, such as steps=3000, or epochs=10"
            )
        return check_int("steps", steps, 1)
    if steps is not None:
        raise UnseenError("give steps or epochs, not both")
    batches = loader_length(loader)
    if batches is None:
        raise UnseenError("the loader has no length, so epochs cannot be counted: give steps")
    if batches == 0:
        raise UnseenError("the loader has no batches: an epoch would have no step")
    return check_int("epochs", epochs, 1) * batches


def _check_schedule(schedule: Schedule) -> Schedule:
    if schedule in ("constant", "none"):
        return "none"
    if schedule in LR_SCHEDULES or (callable(schedule) and not isinstance(schedule, type)):
        return schedule
    raise UnseenError(
        f"schedule must be constant, {', '.join(LR_SCHEDULES)}, or a function from the fraction of "
        f"training done to the fraction of the learning rate left, not {schedule!r}"
    )


def _is_watched(step: int, total: int, warmup: int | None, progress: bool) -> bool:
    return step in (warmup, total) or (progress and step % PROBE_EVERY == 0)


def _numbers(logs: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}


def first_batches(name: str, loader: Iterable[Any], samples: int) -> list[Batch]:
    """Return at most `samples` samples of the loader; torch's random state is left as it was."""
    batches: list[Batch] = []
    with torch.random.fork_rng(devices=[]):
        for batch in batches_from(loader, name):
            batches.append(batch.rows(slice(samples)))
            samples -= len(batch.y)
            if samples <= 0:
                break
    return batches


@torch.no_grad()
def accuracy_on(net: Method, batches: list[Batch]) -> float:
    """Return the accuracy over labels that are not ignored; nan if there are none."""
    correct = total = 0
    for batch in batches:
        logits, labels = net.predict(batch.to(net.device).x), batch.y.cpu()
        check_labels(logits, labels, net.ignore_label)
        valid = labels != net.ignore_label
        correct += int((logits.argmax(1).cpu() == labels)[valid].sum())
        total += int(valid.sum())
    return correct / total if total else math.nan


@torch.no_grad()
def loss_on(net: Method, batches: list[Batch]) -> float:
    """Return the mean loss of the predictions."""
    total = samples = 0.0
    for batch in (b.to(net.device) for b in batches):
        total += float(net.objective(net.predict(batch.x), batch.y)) * len(batch.y)
        samples += len(batch.y)
    return total / samples


def calibrate(
    net: Method,
    source: Iterable[Any],
    held_out: Iterable[Any] | None = None,
    score_at: ScoreAt | None = None,
) -> None:
    """Calibrate the method's detector: source statistics, from which thresholds are made.

    Args:
        score_at: where a method with learned noise computes its score: at the first "site", as in
            the paper, or at the "embedding", which ranked domains by their error better where we
            measured it. None keeps the detector in use.
    """
    check_method(net)
    if score_at not in (None, *typing.get_args(ScoreAt)):
        raise UnseenError(f"score_at must be site or embedding, not {score_at!r}")
    _build(net, "the training data", source)
    detector = net.detector if score_at is None else net.make_detector(score_at)
    net.detector = detector.calibrate(source, held_out)
    net.keep_held_out(held_out)


def check_method(net: Any) -> Method:
    """Return the method; raise if this is a bare model or something else."""
    if isinstance(net, History):
        raise UnseenError("needs a method, not the history of a fit: give history.net")
    if not isinstance(net, Method):
        if isinstance(net, nn.Module):
            bare_model(net)  # names what to give instead of a model wrapped for several devices
        raise UnseenError(
            f"needs a method, not {describe_type(net)}: wrap a model, such as unseen.ERM(model) or "
            'unseen.UncertaintyGuided(model, sites="auto")'
        )
    return net
