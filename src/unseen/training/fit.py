"""Training in memory, for a user's own model and loader."""

from __future__ import annotations

import logging
import math
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unseen.api import Batch, Method, ScoreAt
from unseen.augmentations import Augment, augmented
from unseen.checks import check_int
from unseen.detection.source_statistics import EmbeddingShiftPredictor, SourceStatistics
from unseen.errors import UnseenError
from unseen.training.machine import pick_device
from unseen.training.progress import TrainingProgress

log = logging.getLogger("unseen")

REMEMBERED = 2000  # samples of the source that a model's statistics are taken from
ENOUGH = 200  # held-out ones, from which on the promised rate of false alarms held in our tests: docs/monitoring.md
LOOKED_AT = 128  # samples at most that progress tells the accuracy of,
LOOK_EVERY = 50  # at every so many steps: about a hundredth of plain training's time


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
    """Train on the source for that many steps, then remember its statistics for the uncertainty score.

    `loader` yields (x, y) and is gone through as often as needed. `held_out`, source data that was not trained on, makes
    the alarm's threshold honest; without it the training data stands in, which alarms a little too easily.
    `augment` transforms the inputs of every batch: "cutout", "autoaugment", "randconv", "flip_crop", a list
    of these, or a function of your own.
    """
    check_int("steps", steps, 1)
    for name, data in (("loader", loader), ("held_out", held_out)):
        if iter(data if data is not None else ()) is data:
            raise UnseenError(
                f"{name} can be gone through only once: give a DataLoader or a list of batches"
            )
    if length_of(held_out) == 0:
        raise UnseenError(
            "held_out is empty: give source data that is not trained on, or leave it out"
        )
    for remark in net.warnings(steps):
        log.warning(remark)
    net.to(pick_device(device)).train()
    batches, watched = endless(loader), {}
    few = first_batches(loader if held_out is None else held_out, LOOKED_AT) if progress else []
    with TrainingProgress(net.name, steps, quiet=not progress) as shown:
        for step in range(1, steps + 1):
            watched["loss"] = finite(
                net.step(augmented(next(batches).to(net.device), augment)), step
            )
            if few and (step % LOOK_EVERY == 0 or step == steps):
                watched["source accuracy"] = share_right(net, few)
            shown.at(step, watched)
    net.eval()
    calibrate(net, loader, held_out)
    return net


def first_batches(loader: Iterable[Any], samples: int) -> list[Batch]:
    """The loader's first samples, at most so many; torch's random numbers go on as if nobody had looked."""
    found: list[Batch] = []
    with torch.random.fork_rng(devices=[]):
        for pair in loader:
            batch = Batch.of(pair)
            found.append(Batch(tuple(t[:samples] for t in batch.x), batch.y[:samples]))
            samples -= len(batch.y)
            if samples <= 0:
                break
    return found


@torch.no_grad()
def share_right(net: Method, batches: list[Batch]) -> float:
    """Accuracy of the model as it is now, over the labels that count; nan if there are none."""
    right = total = 0
    for batch in batches:
        guess, counted = (
            net.predict(tuple(t.to(net.device) for t in batch.x)).argmax(1).cpu(),
            batch.y.cpu() != net.ignore_label,
        )
        right, total = (
            right + int((guess == batch.y.cpu())[counted].sum()),
            total + int(counted.sum()),
        )
    return right / total if total else math.nan


def length_of(loader: Any) -> int | None:
    """How many batches a loader has, if it can tell; one over an IterableDataset has a length that raises."""
    try:
        return len(loader)
    except TypeError:
        return None


def endless(loader: Iterable[Any]) -> Iterator[Batch]:
    """The loader's batches, over and over."""
    while True:
        empty = True
        for pair in loader:
            empty = False
            yield Batch.of(pair)
        if empty:
            why = "drop_last=True with too few samples, or a generator, which can be gone through only once?"
            raise UnseenError(f"the loader is empty: it yielded no batch ({why})")


def finite(logs: dict[str, Tensor], step: int) -> float:
    """The loss, if it is a number."""
    loss = float(logs["loss"])
    if not math.isfinite(loss):
        parts = ", ".join(f"{name} {float(value):.3g}" for name, value in logs.items())
        raise UnseenError(
            f"the loss is {loss} at step {step} ({parts}): lower lr or ascent_lr, or look for NaN in the data"
        )
    return loss


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
