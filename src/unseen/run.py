"""Runs on disk: one task x method x seed in a folder. The training loop is here, visible, and knows only the contract.

config.json  records.jsonl  state.safetensors (while it trains)  model.safetensors  source.safetensors  figures/  done
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, default_collate

import unseen
from unseen.adaptation import draw_shots, fine_tune
from unseen.contracts import Batch, Domain, Method, Task
from unseen.errors import UnseenError
from unseen.fit import REMEMBERED, calibrate, finite
from unseen.machine import pick_device
from unseen.methods import method_named
from unseen.progress import TrainingProgress
from unseen.settings import resolve
from unseen.sites import evaluating, laid_out_for
from unseen.store import (
    CONFIG,
    load_method,
    read_json,
    read_tensors,
    restore_training_state,
    save_method,
    training_state,
    write_atomically,
    write_json,
    write_tensors,
)

EVALUATION_BATCH = 256
SNAPSHOTS = 8  # moments of a run that the paper's figures are drawn from
SNAPSHOT_SAMPLES = 128


class Run:
    """A run's folder: its configuration, its records, and where it stands."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def done(self) -> bool:
        return (self.folder / "done").exists()

    @property
    def config(self) -> dict[str, Any]:
        return read_json(self.folder / CONFIG)

    @property
    def state_path(self) -> Path:
        return self.folder / "state.safetensors"

    def records(self) -> list[dict[str, Any]]:
        path = self.folder / "records.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(json.loads(line))
            except ValueError:
                if number < len(lines):  # a torn last line is what a kill leaves, and the checkpoint rewrites it
                    raise UnseenError(f"{path}, line {number} is not JSON") from None
        return records

    def append(self, records: list[dict[str, Any]]) -> None:
        try:
            with (self.folder / "records.jsonl").open("a") as file:
                file.writelines(json.dumps(r) + "\n" for r in records)
        except OSError as error:
            raise UnseenError(f"cannot write {self.folder / 'records.jsonl'}: {error.strerror}") from error

    def rewrite(self, records: list[dict[str, Any]]) -> None:
        write_atomically(self.folder / "records.jsonl", "".join(json.dumps(r) + "\n" for r in records).encode())

    def replace(self, records: list[dict[str, Any]]) -> None:
        """Add records in the place of earlier ones of the same step, domain, split and metric."""
        new = {_record_key(r) for r in records}
        self.rewrite([r for r in self.records() if _record_key(r) not in new] + records)

    def load(self, task: Task, device: str = "auto") -> Method:
        """The trained method around the task's model."""
        if not self.done:
            hint = "it is not finished: go on with --resume" if (self.folder / CONFIG).exists() else "there is no run"
            raise UnseenError(f"{self.folder}: {hint}")
        if (trained_on := self.config.get("task")) != task.name:
            raise UnseenError(f"{self.folder} was trained on the task {trained_on}, not on {task.name}")
        return load_method(self.folder, task.model()).to(pick_device(device))


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
    task_word: str | None = None,
) -> Run:
    """Train a method on a task's source, never touching its targets, into the folder `out`."""
    kind, where, run = method_named(method), pick_device(device), Run(out)
    checked_seed(seed)
    loop, settings = resolve(task, kind, preset, overrides or {})
    torch.manual_seed(seed)
    net = kind(task.model(), **settings).to(where).train()
    config = {
        **_identity(task, net, preset, loop, seed),
        "task_word": task_word or task.name,
        "command": " ".join(["unseen", *sys.argv[1:]]) if Path(sys.argv[0]).stem in ("unseen", "cli") else "unseen.run.train",
        "device": str(where), "threads": torch.get_num_threads(), "commit": _commit(),
        "versions": {"unseen": unseen.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }  # fmt: skip
    if run.done and resume:
        _same_run(run, config)
        run.state_path.unlink(missing_ok=True)  # a kill may have come between `done` and this
        return run
    source, held_out = (_loaded(task.source, split) for split in ("train", "val"))
    steps, batch_size = loop["steps"], loop["batch"]
    if len(source) < batch_size:  # type: ignore[arg-type]
        size = len(source)  # type: ignore[arg-type]
        raise UnseenError(f"{task.source.name}/train has {size} samples, fewer than one batch of {batch_size}")

    had = set(run.folder.iterdir()) if run.folder.is_dir() else None
    first = _start(run, config, net, resume)
    try:
        _train_loop(run, task, net, source, first, steps, batch_size, seed, loop, progress)
        _finish(run, task, net, source, held_out, config, steps)
    except Exception:
        # An error before the first checkpoint leaves nothing worth keeping, so nothing half-written stays behind.
        if not first and not run.state_path.exists() and not run.done:
            _undo(run.folder, had)
        raise
    return run


def _train_loop(
    run: Run, task: Task, net: Method, source: Dataset, first: int, steps: int, batch_size: int, seed: int,
    loop: dict[str, Any], progress: bool,
) -> None:  # fmt: skip
    run_id = run.config["run"]
    with torch.random.fork_rng(devices=[]):  # a data set may draw random numbers of its own
        fixed = next(batches_of(source, SNAPSHOT_SAMPLES)).to(net.device)
    snapshots = {max(1, round(steps * i / SNAPSHOTS)) for i in range(1, SNAPSHOTS + 1)} | {1}
    label = f"{task.name} {net.name} seed {seed}"
    started, pending = time.monotonic(), []
    with TrainingProgress(label, steps, first, quiet=not progress) as shown:
        for step in range(first + 1, steps + 1):
            batch = training_batch(source, batch_size, seed, step - 1).to(net.device)
            try:
                logs = net.step(batch)
            except RuntimeError as error:
                shapes = ", ".join(str(tuple(t.shape)) for t in batch.x)
                raise UnseenError(f"step {step} failed on a batch of shape {shapes}: {error}") from error
            loss = finite(logs, step)
            if step % loop["log_every"] == 0 or step == steps:
                at = {"run": run_id, "step": step, "domain": task.source.name, "split": "train"}
                pending += [{**at, "metric": name, "value": float(value)} for name, value in logs.items()]
                seconds = time.monotonic() - started
                pending.append({**at, "metric": "seconds_per_step", "value": seconds / (step - first)})
            if step in snapshots:
                write_tensors(run.folder / "figures" / f"step_{step:06d}.safetensors", net.snapshot(fixed))
            if step % loop["checkpoint_every"] == 0 or step == steps:
                run.append(pending)
                pending = []
                write_tensors(run.state_path, training_state(net))
            shown.at(step, {"loss": loss})


def _finish(
    run: Run, task: Task, net: Method, source: Dataset, held_out: Dataset, config: dict[str, Any], steps: int
) -> None:  # fmt: skip
    net.eval()
    calibrate(net, _remembered(source), _remembered(held_out))
    at = {"run": config["run"], "step": steps, "domain": task.source.name, "split": "val"}
    run.replace([{**at, "metric": task.metric, "value": accuracy(net, held_out, net.ignore_label)[0]}])
    save_method(net, run.folder, config)
    write_atomically(run.folder / "done", b"")
    run.state_path.unlink(missing_ok=True)


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


def _remembered(data: Dataset) -> list[Batch]:
    """A random part of the data, in batches: data on disk is often sorted by class."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    return [_picked(data, part) for part in order[:REMEMBERED].split(EVALUATION_BATCH)]


def _loaded(domain: Domain, split: str) -> Dataset:
    try:
        data = domain.load(split)
        empty = len(data) == 0  # type: ignore[arg-type]
    except (KeyError, ValueError, IndexError, FileNotFoundError, TypeError) as error:
        raise UnseenError(f'{domain.name} gives no split "{split}": {type(error).__name__}: {error}') from error
    if empty:
        raise UnseenError(f"{domain.name}/{split} has 0 samples")
    return data


def _start(run: Run, config: dict[str, Any], net: Method, resume: bool) -> int:
    """Make or reopen the folder; the number of steps already done."""
    if run.folder.exists() and not run.folder.is_dir():
        raise UnseenError(f"{run.folder} is a file; --out names a folder")
    if resume and run.folder.exists():
        _sweep(run.folder)
    if run.folder.exists() and any(run.folder.iterdir()):
        if not resume:
            raise UnseenError(f"{run.folder} is not empty: add --resume to go on with it, or choose another --out")
        _same_run(run, config)
        if run.state_path.exists():
            restore_training_state(net, read_tensors(run.state_path), run.state_path)
            first = int(net.steps_done)
            run.rewrite([r for r in run.records() if r["step"] <= first])
            return first
        run.rewrite([])
        return 0
    write_json(run.folder / CONFIG, config)
    return 0


def _identity(task: Task, net: Method, preset: str, loop: dict[str, Any], seed: int) -> dict[str, Any]:
    """What makes a run this run; its hash is its name in records."""
    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in net.settings().items()}
    identity = {
        "task": task.name, "variant": task.variant, "method": net.name, "preset": preset, "seed": seed,
        "loop": loop, "settings": settings,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return {"format": 1, "run": digest[:8], **identity}


def _same_run(run: Run, config: dict[str, Any]) -> None:
    before = run.config
    for name in ("task", "variant", "method", "seed", "loop", "settings"):
        old, new = before.get(name), config[name]
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            name, old, new = next((k, old.get(k), new.get(k)) for k in {**old, **new} if old.get(k) != new.get(k))
        advice = "repeat the options it was started with, or use another --out"
        raise UnseenError(f"{run.folder} was started with {name} = {old!r}, now it is {new!r}: {advice}")


def _commit() -> str | None:
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


# ------------------------------------------------------------------------------------------------------------ data


def training_batch(source: Dataset, size: int, seed: int, step: int) -> Batch:
    """The batch of a step: a function of seed and step alone, so that a resumed run sees what it would have seen."""
    total = len(source)  # type: ignore[arg-type]
    epoch, place = divmod(step, total // size)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
    return _picked(source, order[place * size : (place + 1) * size])


def batches_of(data: Dataset, size: int, limit: int | None = None) -> Iterator[Batch]:
    """All samples in order."""
    total = len(data)  # type: ignore[arg-type]
    total = total if limit is None else min(total, limit)
    for start in range(0, total, size):
        yield _picked(data, torch.arange(start, min(start + size, total)))


def _picked(data: Dataset, index: Tensor) -> Batch:
    if isinstance(data, TensorDataset):
        return Batch.of(data[index])
    return Batch.of(default_collate([data[i] for i in index.tolist()]))


# ------------------------------------------------------------------------------------- evaluating, scoring, adapting


@torch.no_grad()
def accuracy(net: Method | nn.Module, data: Dataset, ignore: int = -100) -> tuple[float, int]:
    """Share of labels met, and how many samples there were."""
    right = labels = samples = 0
    model = net.model if isinstance(net, Method) else net
    with evaluating(model):
        for batch in batches_of(data, EVALUATION_BATCH):
            guess = model(*laid_out_for(model, batch.x)).argmax(1).cpu()
            counted = batch.y != ignore
            right += int(((guess == batch.y) & counted).sum())
            labels += int(counted.sum())
            samples += len(batch.y)
    if not labels:
        raise UnseenError("a domain to evaluate on has no labels that count")
    return right / labels, samples


def evaluate(run: Run, task: Task, device: str = "auto") -> dict[str, Any]:
    """Accuracy on the held-out source and on every unseen domain; also written to the run's records."""
    net = run.load(task, device)
    config = run.config
    source_value, source_n = accuracy(net, _loaded(task.source, "test"), net.ignore_label)
    domains = {
        d.name: dict(zip((task.metric, "n"), accuracy(net, _loaded(d, "test"), net.ignore_label), strict=True))
        for d in task.targets
    }
    values = {task.source.name: source_value, **{name: d[task.metric] for name, d in domains.items()}}
    at = {"run": config["run"], "step": config["loop"]["steps"], "split": "test", "metric": task.metric}
    run.replace([{**at, "domain": name, "value": value} for name, value in values.items()])
    return {
        "run": config["run"],
        "task": task.name,
        "method": config["method"],
        "seed": config["seed"],
        "source": {"name": task.source.name, task.metric: source_value, "n": source_n},
        "domains": domains,
        "average": math.fsum(d[task.metric] for d in domains.values()) / len(domains),
    }


def score(
    run: Run,
    task: Task,
    domain: str,
    *,
    batch: int | None = None,
    false_alarm_rate: float = 0.01,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, Any]:
    """How far a domain is from the source, and whether that is more than chance at that many samples."""
    net = run.load(task, device)
    checked_seed(seed)
    data = _loaded(task.domain(domain), "test")
    index = torch.arange(len(data))  # type: ignore[arg-type]
    if batch is not None:
        if not 1 <= batch <= len(index):
            raise UnseenError(f"--batch must lie between 1 and the {len(index)} samples of {domain}, not {batch}")
        index = torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))[:batch]
    features = torch.cat([net.score_features(_picked(data, part).x).cpu() for part in index.split(EVALUATION_BATCH)])
    if net.reference is None:
        raise UnseenError(f"{run.folder} holds no source statistics: train it again")
    value = float(net.score(features.mean(0)))
    threshold = net.threshold(len(index), false_alarm_rate)
    if not math.isfinite(value):
        raise UnseenError(f"the score of {domain} is {value}: look for NaN in its data or in the run's weights")
    return {
        "domain": domain,
        "score": value,
        "threshold": threshold,
        "alarm": value > threshold,
        "n": len(index),
        "score_name": net.score_name,
        "fallback": net.score_name != "sigma",
        "false_alarm_rate": false_alarm_rate,
        "calibrated_on": len(net.reference.held_out),
    }


def adapt(
    run: Run,
    task: Task,
    domain: str,
    shots: int,
    *,
    draws: int = 5,
    steps: int = 100,
    lr: float = 1e-4,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, Any]:
    """Fine-tune on `shots` labels a class, several times with fresh shots; what it did for the domain and to the source."""
    net = run.load(task, device)
    if domain in ("source", task.source.name):
        raise UnseenError(f"{domain} is the source: name an unseen domain, one of {', '.join(d.name for d in task.targets)}")
    checked_seed(seed)
    if shots < 1 or draws < 1 or steps < 1:
        raise UnseenError("shots, draws and steps must be at least 1")
    target = task.domain(domain)
    pool, test, source = _loaded(target, "train"), _loaded(target, "test"), _loaded(task.source, "test")
    everything = _picked(pool, torch.arange(len(pool)))  # type: ignore[arg-type]
    after, source_after = [], []
    for draw in range(draws):
        generator = torch.Generator().manual_seed(seed * 1000 + draw)
        picked = draw_shots(everything.y, shots, task.classes, generator)
        shots_x = tuple(t[picked] for t in everything.x)
        adapted = fine_tune(
            net.model, shots_x, everything.y[picked], steps=steps, lr=lr, seed=draw, ignore_label=net.ignore_label
        )
        after.append(accuracy(adapted, test, net.ignore_label)[0])
        source_after.append(accuracy(adapted, source, net.ignore_label)[0])
    spread = torch.tensor(after, dtype=torch.float64)
    return {
        "domain": domain,
        "shots": shots,
        "draws": draws,
        "before": accuracy(net, test, net.ignore_label)[0],
        "after_mean": float(spread.mean()),
        "after_std": float(spread.std()) if draws > 1 else 0.0,
        "after": after,
        "source_before": accuracy(net, source, net.ignore_label)[0],
        "source_after": math.fsum(source_after) / draws,
    }
