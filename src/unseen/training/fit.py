"""Train a model on a loader, in memory."""

from __future__ import annotations

import logging
import math
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unseen.api import Batch, Method, ScoreAt
from unseen.augmentations import Augment, augment_batch
from unseen.checks import check_int
from unseen.detection.source_statistics import EmbeddingShiftPredictor, SourceStatistics
from unseen.errors import UnseenError
from unseen.training.loop import training_steps
from unseen.training.machine import pick_device
from unseen.training.progress import TrainingProgress

log = logging.getLogger("unseen")

REMEMBERED = 2000  # samples of the source that the statistics are computed from
ENOUGH = 200  # held-out samples for which the false-alarm rate was verified: docs/monitoring.md
PROBE = 128  # samples at most whose accuracy progress shows
PROBE_EVERY = 50  # steps between two looks at it: about 1 % of the time of standard training


def fit(
    net: Method,
    loader: Iterable[Any],
    steps: int,
    *,
    held_out: Iterable[Any] | None = None,
    augment: Augment = None,
    device: str = "auto",
    progress: bool = True,
) -> Method:
    """Train on the source, then calibrate the uncertainty score and the alarm.

    `loader` yields (x, y) and is iterated as often as needed. `held_out` is source data that is not
    trained on; without it the alarm is calibrated on training data and fires too often. `augment`
    transforms the inputs of every batch: "cutout", "autoaugment", "randconv", "flip_crop", a list
    of these, or a function.
    """
    check_int("steps", steps, 1)
    for name, data in (("loader", loader), ("held_out", held_out)):
        if iter(data if data is not None else ()) is data:
            raise UnseenError(
                f"{name} can be iterated only once: give a DataLoader or a list of batches"
            )
    if length_of(held_out) == 0:
        raise UnseenError(
            "held_out is empty: give source data that is not trained on, or leave it out"
        )
    for warning in net.warnings(steps):
        log.warning(warning)
    net.to(pick_device(device)).train()
    probe = first_batches(loader if held_out is None else held_out, PROBE) if progress else []
    batches = (augment_batch(batch.to(net.device), augment) for batch in endless(loader))
    shown = TrainingProgress(net.name, steps, quiet=not progress)
    for step, _ in training_steps(net.step, batches, shown):
        if probe and (step % PROBE_EVERY == 0 or step == steps):
            shown.metrics["source accuracy"] = accuracy_on(net, probe)
    net.eval()
    calibrate(net, loader, held_out)
    return net


def first_batches(loader: Iterable[Any], samples: int) -> list[Batch]:
    """Return at most `samples` samples of the loader; torch's random state is left as it was."""
    batches: list[Batch] = []
    with torch.random.fork_rng(devices=[]):
        for pair in loader:
            batch = Batch.of(pair)
            batches.append(Batch(tuple(t[:samples] for t in batch.x), batch.y[:samples]))
            samples -= len(batch.y)
            if samples <= 0:
                break
    return batches


@torch.no_grad()
def accuracy_on(net: Method, batches: list[Batch]) -> float:
    """Return the accuracy over labels that are not ignored; nan if there are none."""
    correct = total = 0
    for batch in batches:
        prediction = net.predict(tuple(t.to(net.device) for t in batch.x)).argmax(1).cpu()
        labels = batch.y.cpu()
        valid = labels != net.ignore_label
        correct += int((prediction == labels)[valid].sum())
        total += int(valid.sum())
    return correct / total if total else math.nan


def length_of(loader: Any) -> int | None:
    """Return the number of batches, or None; a loader over an IterableDataset has no length."""
    try:
        return len(loader)
    except TypeError:
        return None


def endless(loader: Iterable[Any]) -> Iterator[Batch]:
    """Yield the loader's batches, over and over."""
    while True:
        empty = True
        for pair in loader:
            empty = False
            yield Batch.of(pair)
        if empty:
            raise UnseenError(
                "the loader yielded no batch: is it a generator, which can be iterated only once, "
                "or has it drop_last=True and too few samples?"
            )


@torch.no_grad()
def calibrate(
    net: Method,
    source: Iterable[Any],
    held_out: Iterable[Any] | None = None,
    score_at: ScoreAt | None = None,
) -> None:
    """Remember the source's statistics, from which scores are told apart and thresholds are set.

    `score_at` says where a method with learned noise reads its score: at the first "site", as in the paper, or at the
    "embedding", which orders domains by their error better where it has been measured. None: where it did before.
    """
    if score_at not in (None, *typing.get_args(ScoreAt)):
        raise UnseenError(f"score_at must be site or embedding, not {score_at!r}")
    if score_at == "embedding" or (score_at is None and net.reader is not None):
        net.reader = EmbeddingShiftPredictor.fit(*_rows(net.transport, source).chunk(2, 1))
    else:
        net.reader = None
    mean = _rows(net.score_features, source).mean(0)
    net.reference = SourceStatistics(
        mean, _rows(net.score_features, source if held_out is None else held_out)
    )
    if held_out is None:
        log.warning(
            "no held-out source data: the alarm is calibrated on training data, and may be false more often than it says"
        )
    elif (shown := len(net.reference.held_out)) < ENOUGH:
        remark = "the alarm is calibrated on %d held-out source samples: below %d it may be false more often than it says"
        log.warning(remark, shown, ENOUGH)


def _rows(look: Callable[[tuple[Tensor, ...]], Tensor], loader: Iterable[Any]) -> Tensor:
    """What a look gives of up to REMEMBERED samples, spread evenly over the loader, which may well be sorted by class."""
    batches = length_of(loader)
    generator = torch.Generator().manual_seed(0)
    rows: list[Tensor] = []
    for pair in loader:
        x = Batch.of(pair).x
        if batches is not None:
            picked = torch.randperm(len(x[0]), generator=generator)[
                : math.ceil(REMEMBERED / batches)
            ]
            x = tuple(t[picked.to(t.device)] for t in x)
        rows.append(look(x).cpu())
        if batches is None and sum(map(len, rows)) >= REMEMBERED:
            break
    if not rows:
        raise UnseenError(
            "no source data to take statistics from: the loader is empty (a generator can be gone through only once)"
        )
    return torch.cat(rows)
