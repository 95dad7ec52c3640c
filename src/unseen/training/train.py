"""Train one run into its folder; a killed run resumes with the same bits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from unseen.api import Batch, Method, Task
from unseen.augmentations import Views
from unseen.detection.sampling import MAX_SAMPLES
from unseen.errors import SampleError, UnseenError
from unseen.files import locked
from unseen.methods import method_named
from unseen.nn.inputs import check_label_range
from unseen.nn.ranks import shared_by
from unseen.nn.tensor_files import read_tensors, write_tensors
from unseen.schema import plain
from unseen.training.batches import (
    batches_of,
    evaluation_size,
    load_split,
    random_part,
    samples_named,
    stream,
    training_indices,
)
from unseen.training.checkpoint import (
    check_training_state,
    save_method,
    training_state,
)
from unseen.training.config import LoopSettings, resolve
from unseen.training.distributed import Processes, join
from unseen.training.evaluation import evaluate_metric
from unseen.training.fit import calibrate
from unseen.training.group import follow_steps, hear_start, tell_start, telling_failures
from unseen.training.identity import (
    TRAINED_ON,
    check_seed,
    identity,
    origin,
    trained_on,
)
from unseen.training.loggers.registry import AnyLogger, Loggers, make_loggers, points_of
from unseen.training.loop import training_steps
from unseen.training.machine import forget_peak_memory, peak_memory, pick_device, processor
from unseen.training.preparation import (
    adjust_to_steps,
    count_steps,
    find_layers,
    random_state_kept,
)
from unseen.training.progress import TrainingProgress
from unseen.training.run import DONE, RECORDS, Run, record_lines
from unseen.training.run_folder import open_run, remove_new, reopen_finished, start_loggers
from unseen.training.sample_images import pixels
from unseen.training.updates import Updates, train_mode

log = logging.getLogger("unseen")

SNAPSHOTS = 8  # evenly spaced steps whose arrays the paper's figures are drawn from
SNAPSHOT_SAMPLES = 128
SNAPSHOT_IMAGES = 8  # of these samples are saved as images, to lay the noise maps over


def train(
    task: Task,
    method: str,
    out: str | Path,
    *,
    preset: str = "fast",
    recipe: str | None = None,
    overrides: dict[str, Any] | None = None,
    seed: int = 0,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    tensorboard: bool = False,
    logger: AnyLogger = None,
    task_word: str | None = None,
    after_checkpoint: Callable[[int, int, Method], None] | None = None,
) -> Run:
    """Train a method on a task's source into the folder `out`. The targets are never loaded.

    Args:
        tensorboard: the same as logger="tensorboard".
        logger: "tensorboard", "wandb", "mlflow", a list of these, or of objects of `Logger`.
        after_checkpoint: called with the step, the number of steps and the method after each
            checkpoint was written, and again for the checkpoint that training resumes from: a kill
            may have come before the call. May raise to stop the training there.
    """
    method_class, target_device, run = method_named(method), pick_device(device), Run(out)
    processes = join(target_device)
    loggers = make_loggers(
        logger if processes.leads else None, run.folder, tensorboard=tensorboard and processes.leads
    )
    check_seed(seed)
    settings = resolve(task, method_class, preset, overrides or {}, recipe=recipe)
    settings = settings._replace(loop=count_steps(task, settings.loop))
    loop = settings.loop
    torch.manual_seed(seed)
    net = method_class(task.model(**settings.model), **settings.method).to(target_device)
    find_layers(net, task)
    adjust_to_steps(net, task, loop)
    train_mode(net)
    config = {
        **identity(task, net, preset, settings, seed),
        "task_word": task_word or task.name,
        **({"method_word": method} if ":" in method else {}),
        "class_names": list(task.class_names),
        **task.record,
        "overrides": plain(overrides or {}),
        **({"recipe": recipe} if recipe else {}),
        "device": str(target_device),
        "processor": processor(),
        **origin(),
    }
    if processes.leads and run.done and resume:
        with telling_failures(processes):
            finished = reopen_finished(run, config, loggers)
        tell_start(processes, config["run"], None)
        return finished
    source, held_out = (load_split(task.source, split) for split in ("train", "val"))
    if (size := len(source)) < loop.batch_size:  # type: ignore[arg-type]
        raise UnseenError(
            f"{task.source.name}/train has {size} samples, "
            f"fewer than one batch of {loop.batch_size}"
        )
    config[TRAINED_ON] = trained_on(task, source, held_out)
    for warning in net.warnings(loop.steps):
        log.warning(warning)
    forget_peak_memory()
    updates = Updates(net, loop, processes=processes)
    training = _Training(
        run, task, net, updates, source, held_out, loop, seed, loggers, after_checkpoint
    )
    if not processes.leads:
        training.follow(config["run"])
        return run
    with ExitStack() as opened:
        with telling_failures(processes):
            opened.enter_context(locked(run.folder, nested=True))
            opened.enter_context(loggers)
            present = set(run.folder.iterdir()) if run.folder.is_dir() else None
            config, first = open_run(run, config, updates, resume)
        tell_start(processes, config["run"], updates, first)
        training.saved_step = first
        try:
            start_loggers(loggers, run, config)
            training.run_steps(config["run"], first, progress)
            training.finish(config)
            processes.everywhere(True)  # the others wait for the end
        except UnseenError as error:
            if training.saved_step:
                raise UnseenError(f"{error}; {training.kept()}") from error
            remove_new(run.folder, present)
            raise
        except Exception:
            # Before the first checkpoint there is nothing to resume: leave nothing behind.
            if not training.saved_step:
                remove_new(run.folder, present)
            raise
        except BaseException:  # a signal
            log.warning("%s", training.kept())
            raise
    return run


@dataclass
class _Training:
    run: Run
    task: Task
    net: Method
    updates: Updates
    source: Dataset
    held_out: Dataset
    loop: LoopSettings
    seed: int
    loggers: Loggers
    after_checkpoint: Callable[[int, int, Method], None] | None = None
    saved_step: int = 0  # of the last checkpoint

    def kept(self) -> str:
        """Describe what the folder holds when training stops early."""
        if self.run.done:
            return f"{self.run.folder} is finished"
        step = self.saved_step
        with suppress(UnseenError, OSError, KeyError):
            # The file knows best: a signal may come between its end and `saved_step`.
            step = int(read_tensors(self.run.state_path)["net/steps_done"])
        if not step:
            return f"{self.run.folder} has no checkpoint yet"
        return f"{self.run.folder} keeps the checkpoint of step {step}"

    def follow(self, run_id: str) -> None:
        """Take the steps of process 0, which writes."""
        first = hear_start(self.updates, run_id, self.run.state_path)
        if first is not None:
            follow_steps(self.updates, self._batches(first), first)

    def run_steps(self, run_id: str, first: int, show_progress: bool) -> None:
        """Train from step `first` on; log, snapshot and checkpoint as the settings say."""
        net, loop, steps = self.net, self.loop, self.loop.steps
        fixed, probe = self._monitored_samples()
        # The last of the kept weights are those of the finished run.
        keep_at = {round(steps * i / loop.num_checkpoints) for i in range(1, loop.num_checkpoints)}
        snapshot_at = {1} | {max(1, round(steps * i / SNAPSHOTS)) for i in range(1, SNAPSHOTS + 1)}
        label = f"{self.task.name} {net.name} seed {self.seed}"
        progress = TrainingProgress(label, steps, first, quiet=not show_progress)
        started, pending = time.monotonic(), []

        def checkpoint_at(step: int) -> bool:
            return step % loop.checkpoint_every == 0 or step == steps

        with self.updates.running(first) as schedulers:
            if first:
                self._call_after_checkpoint(first)
            for step, logs in training_steps(
                self.updates.step,
                self._batches(first),
                progress,
                schedulers,
                weights=net,
                check_at=lambda step: checkpoint_at(step) or step in keep_at | snapshot_at,
                skipped=lambda: self.updates.skipped,
            ):
                if step % loop.log_every == 0 or step == steps:
                    seconds = (time.monotonic() - started) / (step - first)
                    values = {name: float(value) for name, value in logs.items()}
                    pending += self._records(
                        run_id, step, "train", {**values, "seconds_per_step": seconds}
                    )
                if step in snapshot_at | keep_at:
                    with self.updates.averaged():
                        pending += self._keep(run_id, step, fixed, snapshot_at, keep_at)
                if checkpoint_at(step):
                    pending = self._checkpoint(run_id, step, probe, progress, pending)

    def _keep(
        self, run_id: str, step: int, fixed: Batch, snapshot_at: set[int], keep_at: set[int]
    ) -> list[dict[str, Any]]:
        """Write the arrays of figures and the weights that are kept at this step."""
        if step in snapshot_at:
            path = self.run.folder / "figures" / f"step_{step:06d}.safetensors"
            write_tensors(path, self.net.snapshot(fixed))
        if step not in keep_at:
            return []
        score = self._evaluate(self.held_out)
        write_tensors(self.run.kept_path(step), self.net.state_dict())
        return self._records(run_id, step, "val", {self.task.metric: score})

    def _checkpoint(
        self,
        run_id: str,
        step: int,
        probe: Dataset,
        progress: TrainingProgress,
        pending: list[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Write the state of training and the pending records; return those still pending."""
        with self.updates.averaged():
            score = self._evaluate(probe)
        progress.metrics[f"source {self.task.metric}"] = score
        pending += self._records(run_id, step, "train", {f"source_{self.task.metric}": score})
        state = {**training_state(self.net), **self.updates.state()}
        check_training_state(self.net, state, step)
        self.run.append(pending)
        write_tensors(self.run.state_path, state)
        self.saved_step = step
        self.loggers.log(points_of(pending))
        self._call_after_checkpoint(step)
        return []

    def _call_after_checkpoint(self, step: int) -> None:
        if self.after_checkpoint is not None:
            with self.updates.averaged(), random_state_kept(self.net):
                self.after_checkpoint(step, self.loop.steps, self.net)

    def finish(self, config: dict[str, Any]) -> None:
        """Calibrate, evaluate on the held-out source and save."""
        self.updates.finish()
        net = self.net.eval()
        score_at = self.task.score_at if net.detector.reads_learned_noise else None
        source, held_out = (random_part(d, MAX_SAMPLES) for d in (self.source, self.held_out))
        calibrate(net, source, held_out, score_at)
        score = evaluate_metric(self.task.metric, net, self.held_out, net.ignore_label).value
        records = self._records(config["run"], self.loop.steps, "val", {self.task.metric: score})
        save_method(
            net,
            self.run.folder,
            {**config, "peak_memory": peak_memory(net.device)},
            {RECORDS: record_lines(self.run.updated(records)), DONE: b""},
            [self.run.state_path.name],
        )
        self.loggers.log(points_of(records))

    def _batches(self, first: int) -> Iterator[Batch]:
        size, steps = self.loop.batch_size, range(first, self.loop.steps)
        views = Views(self.loop.augment, self.loop.views)
        processes = self.updates.processes
        if isinstance(processes, Processes):
            processes.divide(size)
        batches = stream(self.source, map(self._indices, steps), size * len(steps))
        for step, batch in zip(steps, batches, strict=False):
            self._check_labels(batch.y, step)
            with shared_by(processes):
                batch = views(batch.to(self.net.device))
            yield batch

    def _indices(self, step: int) -> Tensor:
        """Return the samples of a step that this process has."""
        whole = training_indices(self.source, self.loop.batch_size, self.seed, step)
        return self.updates.processes.take(whole)

    def _check_labels(self, y: Tensor, step: int) -> None:
        try:
            if y.dtype == torch.int64 and self.net.objective.classifies:  # a step checks the rest
                check_label_range(y, self.task.classes, self.net.ignore_label)
        except SampleError:
            with samples_named(self.source, self._indices(step)):
                raise

    def _monitored_samples(self) -> tuple[Batch, Dataset]:
        """Return fixed source samples for snapshots, and a held-out part to watch the metric on."""
        with random_state_kept(self.net):  # a data set may draw random numbers
            few = max(1, min(SNAPSHOT_SAMPLES, evaluation_size(self.source) // 4))
            fixed = next(batches_of(self.source, few, limit=few)).to(self.net.device)
            total = len(self.held_out)  # type: ignore[arg-type]
            order = torch.randperm(total, generator=torch.Generator().manual_seed(0))
            size = min(SNAPSHOT_SAMPLES, evaluation_size(self.held_out))
            probe = Subset(self.held_out, order[:size].tolist())
        if (images := pixels(fixed.x, SNAPSHOT_IMAGES)) is not None:
            write_tensors(self.run.folder / "figures" / "inputs.safetensors", {"x": images})
        return fixed, probe

    def _evaluate(self, data: Dataset) -> float:
        with random_state_kept(self.net):  # some methods predict from random passes
            return evaluate_metric(self.task.metric, self.net, data, self.net.ignore_label).value

    def _records(
        self, run_id: str, step: int, split: str, values: dict[str, float]
    ) -> list[dict[str, Any]]:
        common = {"run": run_id, "step": step, "domain": self.task.source.name, "split": split}
        return [{**common, "metric": name, "value": value} for name, value in values.items()]
