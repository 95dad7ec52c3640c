"""Train a model on a loader, in memory."""

from __future__ import annotations

import logging
import math
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from unseen.api import Batch, Method
from unseen.augmentations import Augment, augment_batch
from unseen.checks import check_int
from unseen.detection.sampling import loader_length
from unseen.detection.scoring import ScoreAt
from unseen.errors import UnseenError
from unseen.nn.batch import batches_from, iterate
from unseen.nn.inputs import check_labels, describe_type
from unseen.training.loop import training_steps
from unseen.training.machine import pick_device
from unseen.training.progress import TrainingProgress

log = logging.getLogger("unseen")

PROBE = 128  # samples at most whose accuracy progress shows
PROBE_EVERY = 50  # steps between two looks at it: about 1 % of the time of standard training


def fit(
    net: Method,
    loader: Iterable[Any],
    steps: int | None = None,
    *,
    held_out: Iterable[Any] | None = None,
    augment: Augment = None,
    device: str = "auto",
    progress: bool = True,
) -> Method:
    """Train on the source, then calibrate the uncertainty score and the alarm.

    `loader` yields (x, y) or dicts and is iterated as often as needed. `held_out` is source data
    that is not trained on; without it the alarm fires too often. `augment`
    transforms the inputs of every batch: "cutout", "autoaugment", "randconv", "flip_crop", a list
    of these, or a function.
    """
    check_method(net)
    if steps is None:
        raise UnseenError("steps is missing: give the number of updates, such as steps=3000")
    check_int("steps", steps, 1)
    for name, data in (("loader", loader), ("held_out", () if held_out is None else held_out)):
        if iterate(data, name) is data:
            raise UnseenError(
                f"{name} can be iterated only once: give a DataLoader or a list of batches"
            )
    if loader_length(held_out) == 0:
        raise UnseenError(
            "held_out is empty: give source data that is not trained on, or leave it out"
        )
    for warning in net.warnings(steps):
        log.warning(warning)
    net.to(pick_device(device)).train()
    watched = ("loader", loader) if held_out is None else ("held_out", held_out)
    probe = first_batches(*watched, PROBE) if progress else []
    batches = (augment_batch(batch.to(net.device), augment) for batch in endless(loader))
    shown = TrainingProgress(net.name, steps, quiet=not progress)
    for step, _ in training_steps(net.step, batches, shown, weights=net):
        if probe and (step % PROBE_EVERY == 0 or step == steps):
            shown.metrics["source accuracy"] = accuracy_on(net, probe)
    net.eval()
    calibrate(net, loader, held_out)
    return net


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


def endless(loader: Iterable[Any]) -> Iterator[Batch]:
    """Yield the loader's batches, over and over."""
    while True:
        empty = True
        for batch in batches_from(loader, "loader"):
            empty = False
            yield batch
        if empty:
            raise UnseenError(
                "the loader yielded no batch: is it a generator, which can be iterated only once, "
                "or has it drop_last=True and too few samples?"
            )


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
    detector = net.detector if score_at is None else net.make_detector(score_at)
    net.detector = detector.calibrate(source, held_out)
    net.keep_held_out(held_out)


def check_method(net: Any) -> None:
    """Raise unless this is a method, not a bare model."""
    if not isinstance(net, Method):
        raise UnseenError(
            f"needs a method, not {describe_type(net)}: wrap a model, such as unseen.ERM(model) or "
            'unseen.UncertaintyGuided(model, sites="auto")'
        )
