"""Runs on disk: one task x method x seed in a folder. The training loop is here, visible, and knows only the contract.

config.json  records.jsonl  state.safetensors (while it trains)  model.safetensors  source.safetensors  figures/  kept/  done
tensorboard/ (on demand)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, Subset

import unseen
from unseen.api import Method, Task
from unseen.augmentations import augmented
from unseen.errors import UnseenError
from unseen.methods import method_named
from unseen.training.batches import (
    batches_of,
    evaluation_size,
    load_split,
    random_part,
    training_batch,
)
from unseen.training.checkpoint import (
    CONFIG,
    MODEL,
    load_method,
    locked,
    read_json,
    read_tensors,
    restore_training_state,
    save_method,
    training_state,
    write_atomically,
    write_json,
    write_tensors,
)
from unseen.training.config import DECAYS, LOOP, Resolved, matches_type, model_settings, resolve
from unseen.training.evaluation import evaluate_metric
from unseen.training.fit import REMEMBERED, calibrate, finite
from unseen.training.machine import forget_peak_memory, peak_memory, pick_device, processor
from unseen.training.progress import TrainingProgress
from unseen.training.sample_images import pixels
from unseen.training.tensorboard import Curves

log = logging.getLogger("unseen")

RECORD = ("run", "step", "domain", "split", "metric", "value")
TRAINED_ON = "trained_on"
SNAPSHOTS = 8  # moments of a run that the paper's figures are drawn from
SNAPSHOT_SAMPLES = 128
SNAPSHOT_PICTURES = 8  # of these samples are kept as pictures, to lay the noise maps over


class Run:
    """A run's folder: its configuration, its records, and where it stands."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def done(self) -> bool:
        return (self.folder / "done").exists()

    @property
    def config(self) -> dict[str, Any]:
        config = read_json(self.folder / CONFIG)
        if missing := [
            k for k in ("run", "task", "method", "seed", "loop", "settings") if k not in config
        ]:
            raise UnseenError(
                f"{self.folder / CONFIG} is not a run's: it lacks {', '.join(missing)}; what net.save wrote is for unseen.load"
            )
        if not isinstance(config["loop"], dict) or "steps" not in config["loop"]:
            raise UnseenError(f'{self.folder / CONFIG}: "loop" must be an object with "steps"')
        return config

    @property
    def state_path(self) -> Path:
        return self.folder / "state.safetensors"

    def kept_path(self, step: int) -> Path:
        """Weights kept on the way, for choosing among them afterwards."""
        return self.folder / "kept" / f"step_{step:06d}.safetensors"

    def kept_steps(self) -> list[int]:
        return sorted(
            int(path.stem.removeprefix("step_"))
            for path in self.folder.glob("kept/step_*.safetensors")
        )

    def records(self) -> list[dict[str, Any]]:
        path = self.folder / "records.jsonl"
        try:
            lines = path.read_text().splitlines() if path.exists() else []
        except (OSError, ValueError) as error:
            raise UnseenError(f"{path} cannot be read: {error}") from error
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                records.append({name: record[name] for name in RECORD})
            except (ValueError, KeyError, TypeError):
                if number < len(
                    lines
                ):  # a torn last line is what a kill leaves, and the checkpoint rewrites it
                    raise UnseenError(
                        f"{path}, line {number} is not a record: {', '.join(RECORD)} as JSON"
                    ) from None
        return records

    def append(self, records: list[dict[str, Any]]) -> None:
        try:
            with (self.folder / "records.jsonl").open("a") as file:
                file.writelines(json.dumps(r) + "\n" for r in records)
        except OSError as error:
            raise UnseenError(
                f"cannot write {self.folder / 'records.jsonl'}: {error.strerror}"
            ) from error

    def rewrite(self, records: list[dict[str, Any]]) -> None:
        write_atomically(
            self.folder / "records.jsonl", "".join(json.dumps(r) + "\n" for r in records).encode()
        )

    def replace(self, records: list[dict[str, Any]]) -> None:
        """Add records in the place of earlier ones of the same step, domain, split and metric."""
        new = {_record_key(r) for r in records}
        self.rewrite([r for r in self.records() if _record_key(r) not in new] + records)

    def load(self, task: Task, device: str = "auto") -> Method:
        """The trained method around the task's model."""
        if not self.done:
            begun = (self.folder / CONFIG).exists() and self.config
            hint = "it is not finished: go on with --resume" if begun else "there is no run"
            raise UnseenError(f"{self.folder}: {hint}")
        config = self.config
        if (trained_on := config["task"]) != task.name:
            raise UnseenError(
                f"{self.folder} was trained on the task {trained_on}, not on {task.name}"
            )
        if (variant := config.get("variant", task.variant)) != task.variant:
            raise UnseenError(
                f"{self.folder} was trained on {task.name}/{variant}, not on {task.name}/{task.variant}"
            )
        return load_method(self.folder, self._model(task)).to(pick_device(device))

    def _model(self, task: Task) -> nn.Module:
        """The task's model as the run has set it."""
        known, chosen = model_settings(task), self.config.get("model", {})
        if not isinstance(chosen, dict) or any(
            k not in known or not matches_type(v, known[k].annotation) for k, v in chosen.items()
        ):
            told = ", ".join(known) or "none"
            raise UnseenError(
                f'{self.folder / CONFIG}: "model" is {chosen!r}; the settings of this task\'s model are: {told}'
            )
        built_from = (
            {"pretrained": ""} if "pretrained" in chosen else {}
        )  # the run's own weights stand in for that file
        return task.model(**{**chosen, **built_from})


def _record_key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("step", "domain", "split", "metric"))


# -------------------------------------------------------------------------------------------------------- training


def train(
    task: Task,
    method: str,
    out: str | Path,
    *,
    preset: str = "fast",
    overrides: dict[str, Any] | None = None,
    seed: int = 0,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    tensorboard: bool = False,
    task_word: str | None = None,
) -> Run:
    """Train a method on a task's source, never touching its targets, into the folder `out`."""
    kind, where, run = method_named(method), pick_device(device), Run(out)
    curves = Curves(run.folder / "tensorboard" if tensorboard else None)
    checked_seed(seed)
    settings = resolve(task, kind, preset, overrides or {})
    loop = settings.loop
    torch.manual_seed(seed)
    net = kind(task.model(**settings.model), **settings.method).to(where).train()
    config = {
        **identity(task, net, preset, settings, seed),
        "task_word": task_word or task.name, "class_names": list(task.class_names),
        "command": _command(), "overrides": overrides or {},
        "device": str(where), "processor": processor(), "threads": torch.get_num_threads(), "commit": commit_here(),
        "versions": {"unseen": unseen.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }  # fmt: skip
    if run.done and resume:
        same_run(run, config)
        if not (run.folder / MODEL).exists():
            raise UnseenError(
                f"{run.folder} is finished but has lost its {MODEL}: train it again into another --out"
            )
        run.state_path.unlink(missing_ok=True)  # a kill may have come between `done` and this
        with curves:
            curves.restart(run.records())
        return run
    source, held_out = (load_split(task.source, split) for split in ("train", "val"))
    if (size := len(source)) < loop["batch"]:  # type: ignore[arg-type]
        raise UnseenError(
            f"{task.source.name}/train has {size} samples, fewer than one batch of {loop['batch']}"
        )
    config[TRAINED_ON] = trained_on(task, source, held_out)
    for remark in net.warnings(loop["steps"]):
        log.warning(remark)
    forget_peak_memory()
    with locked(run.folder), curves:
        had = set(run.folder.iterdir()) if run.folder.is_dir() else None
        first = _start(run, config, net, resume)
        try:
            curves.restart(run.records())
            _train_loop(run, task, net, source, held_out, first, loop, seed, progress, curves)
            curves.add(_finish(run, task, net, source, held_out, config))
        except Exception:
            # An error before the first checkpoint leaves nothing worth keeping, so nothing half-written stays behind.
            if not first and not run.state_path.exists() and not run.done:
                _undo(run.folder, had)
            raise
    return run


def _train_loop(
    run: Run, task: Task, net: Method, source: Dataset, held_out: Dataset, first: int, loop: dict[str, Any], seed: int,
    progress: bool, curves: Curves,
) -> None:  # fmt: skip
    run_id, steps, batch_size = run.config["run"], loop["steps"], loop["batch"]
    with torch.random.fork_rng(devices=[]):  # a data set may draw random numbers of its own
        few = max(1, min(SNAPSHOT_SAMPLES, evaluation_size(source) // 4))
        fixed = next(batches_of(source, few)).to(net.device)
        order = torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
        glance = Subset(
            held_out, order[: min(SNAPSHOT_SAMPLES, evaluation_size(held_out))].tolist()
        )
    if (looked_at := pixels(fixed.x, SNAPSHOT_PICTURES)) is not None:
        write_tensors(run.folder / "figures" / "inputs.safetensors", {"x": looked_at})
    kept = {
        round(steps * i / loop["keep"]) for i in range(1, loop["keep"])
    }  # the last is the model itself
    snapshots = {max(1, round(steps * i / SNAPSHOTS)) for i in range(1, SNAPSHOTS + 1)} | {1}
    label = f"{task.name} {net.name} seed {seed}"
    started, pending, watched = time.monotonic(), [], {}
    with TrainingProgress(label, steps, first, quiet=not progress) as shown:
        for step in range(first + 1, steps + 1):
            batch = augmented(
                training_batch(source, batch_size, seed, step - 1).to(net.device), loop["augment"]
            )
            set_rates(net, loop["decay"], (step - 1) / steps)
            try:
                logs = net.step(batch)
            except RuntimeError as error:
                shapes = ", ".join(str(tuple(t.shape)) for t in batch.x)
                raise UnseenError(
                    f"step {step} failed on a batch of shape {shapes}: {error}"
                ) from error
            watched["loss"] = finite(logs, step)
            if step % loop["log_every"] == 0 or step == steps:
                at = {"run": run_id, "step": step, "domain": task.source.name, "split": "train"}
                pending += [
                    {**at, "metric": name, "value": float(value)} for name, value in logs.items()
                ]
                seconds = time.monotonic() - started
                pending.append(
                    {**at, "metric": "seconds_per_step", "value": seconds / (step - first)}
                )
            if step in snapshots:
                write_tensors(
                    run.folder / "figures" / f"step_{step:06d}.safetensors", net.snapshot(fixed)
                )
            if step in kept:
                at = {"run": run_id, "step": step, "domain": task.source.name, "split": "val"}
                pending.append(
                    {
                        **at,
                        "metric": task.metric,
                        "value": evaluate_metric(
                            task.metric, net, held_out, net.ignore_label
                        ).value,
                    }
                )
                write_tensors(run.kept_path(step), net.state_dict())
            if step % loop["checkpoint_every"] == 0 or step == steps:
                with torch.random.fork_rng(devices=[]):
                    seen = evaluate_metric(task.metric, net, glance, net.ignore_label).value
                watched[f"source {task.metric}"] = seen
                at = {"run": run_id, "step": step, "domain": task.source.name, "split": "train"}
                pending.append(
                    {**at, "metric": f"source_{task.metric}", "value": seen}
                )  # of a few held-out samples
                run.append(pending)
                write_tensors(run.state_path, training_state(net))
                curves.add(pending)
                pending = []
            shown.at(step, watched)


def set_rates(net: Method, decay: str, done: float) -> None:
    """Every optimizer's learning rates for a step, from those it was made with; `done` is the share of steps before it."""
    if decay == "none":
        return
    for optimizer in net.optimizers().values():
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * DECAYS[decay](done)


def _finish(
    run: Run, task: Task, net: Method, source: Dataset, held_out: Dataset, config: dict[str, Any]
) -> list[dict[str, Any]]:  # fmt: skip
    """Calibrate, examine on the held-out source and save; the last record is given back."""
    net.eval()
    score_at = task.score_at if net.score_name == "sigma" else None
    calibrate(net, random_part(source, REMEMBERED), random_part(held_out, REMEMBERED), score_at)
    at = {
        "run": config["run"],
        "step": config["loop"]["steps"],
        "domain": task.source.name,
        "split": "val",
    }
    last = [
        {
            **at,
            "metric": task.metric,
            "value": evaluate_metric(task.metric, net, held_out, net.ignore_label).value,
        }
    ]
    run.replace(last)
    save_method(net, run.folder, {**config, "peak_memory": peak_memory(net.device)})
    write_atomically(run.folder / "done", b"")
    run.state_path.unlink(missing_ok=True)
    return last


def _undo(folder: Path, had: set[Path] | None) -> None:
    """Remove what this call has made: the folder, or what is new in it."""
    if had is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in set(folder.iterdir()) - had:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sweep(folder: Path) -> None:
    """Remove what a kill in the middle of a write left."""
    for name in (CONFIG, "records.jsonl", "done", "*.safetensors"):
        for torn in folder.rglob(f".{name}.*"):
            torn.unlink()


def _start(run: Run, config: dict[str, Any], net: Method, resume: bool) -> int:
    """Make or reopen the folder; the number of steps already done."""
    if run.folder.exists() and not run.folder.is_dir():
        raise UnseenError(f"{run.folder} is a file; --out names a folder")
    if resume and run.folder.exists():
        _sweep(run.folder)
    if run.folder.exists() and any(run.folder.iterdir()):
        if not resume:
            raise UnseenError(
                f"{run.folder} is not empty: add --resume to go on with it, or choose another --out"
            )
        same_run(run, config)
        if run.state_path.exists():
            restore_training_state(net, read_tensors(run.state_path), run.state_path)
            first = int(net.steps_done)
            run.rewrite([r for r in run.records() if r["step"] <= first])
            return first
        run.rewrite([])
        return 0
    write_json(run.folder / CONFIG, config)
    return 0


def identity(task: Task, net: Method, preset: str, chosen: Resolved, seed: int) -> dict[str, Any]:
    """What makes a run this run; its hash is its name in records."""
    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in net.settings().items()}
    told = {
        "task": task.name, "variant": task.variant, "method": net.name, "preset": preset, "seed": seed,
        "loop": chosen.loop, "settings": settings, "model": chosen.model,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return {"format": 1, "run": digest[:8], **told}


def trained_on(task: Task, source: Dataset, held_out: Dataset) -> dict[str, int]:
    """How much data a run learned from: two runs of one name and seed on different downloads are not the same run."""
    return {"train": len(source), "val": len(held_out), "classes": task.classes}  # type: ignore[arg-type]


def same_run(run: Run, config: dict[str, Any]) -> None:
    """Refuse a folder whose run is not the one that the configuration tells of."""
    before = run.config
    if "adapted" in before:
        raise UnseenError(
            f"{run.folder} holds what `unseen adapt` made, no training to go on with: use another --out"
        )
    if found := difference(before, config):
        name, old, new = found
        advice = "repeat the options it was started with, or use another --out"
        raise UnseenError(
            f"{run.folder} was started with {name} = {old!r}, now it is {new!r}: {advice}"
        )


def difference(before: dict[str, Any], config: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting in which a run's configuration differs from another: its name, what it was, what it is."""
    before = {"model": {}, **before, "loop": {**LOOP, **before["loop"]}}
    if isinstance(before["settings"], dict) and before["method"] == config["method"]:
        # A setting that is newer than the run was then what it is by default, or what the method says it was.
        method = method_named(config["method"])
        then = {**{k: p.default for k, p in method.settings_of().items()}, **method.legacy_defaults}
        before["settings"] = {
            **{k: v for k, v in then.items() if k in config["settings"]},
            **before["settings"],
        }
    for name in ("task", "variant", "method", "seed", "loop", "settings", "model"):
        old, new = before.get(name), config[name]
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            changed = [
                (k, old.get(k), new.get(k)) for k in {**old, **new} if old.get(k) != new.get(k)
            ]
            if changed:
                return changed[0]
            continue  # a setting of None that only one of them has heard of
        return name, old, new
    old, new = before.get(TRAINED_ON), config.get(TRAINED_ON)
    if old is not None and new is not None and old != new:  # runs of before may not say
        return TRAINED_ON, old, new
    return None


def _command() -> str:
    from_shell = Path(sys.argv[0]).stem in ("unseen", "__main__")
    return " ".join(["unseen", *sys.argv[1:]]) if from_shell else "unseen.training.run.train"


def commit_here() -> str | None:
    """The commit of the working tree this package is run from, if it is one."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        here = Path(__file__).resolve().parent
        asked = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
        return answer.stdout.strip() or None
    return None


def checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not 0 <= seed < 2**31:
        raise UnseenError(f"seed must lie between 0 and {2**31 - 1}, not {seed}")
    return seed
