"""What a prediction is worth: every metric is a function of one confusion matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unseen.api import Method
from unseen.errors import UnseenError
from unseen.nn.hooks import evaluating, laid_out_for
from unseen.training.batches import batches_of


class Measured(NamedTuple):
    """A metric on one domain: its value, over how many samples, and by class where the metric has such a thing."""

    value: float
    n: int
    per_class: tuple[float, ...] = ()  # nan for a class that is neither there nor guessed
    confusion: Tensor | None = (
        None  # (C, C): how often each class (row) was taken for each (column)
    )


def accuracy(confusion: Tensor) -> float:
    """Accuracy: the share of labels that were met."""
    return float(confusion.diagonal().sum() / confusion.sum())


def class_iou(confusion: Tensor) -> Tensor:
    """Intersection over union of each class, (C,); nan for a class that is neither there nor guessed."""
    met = confusion.diagonal().double()
    return met / (confusion.sum(0) + confusion.sum(1) - confusion.diagonal())


def mean_iou(confusion: Tensor) -> float:
    """Mean over the classes that are there or were guessed."""
    return float(class_iou(confusion).nanmean())


METRICS: dict[str, Callable[[Tensor], float]] = {"accuracy": accuracy, "miou": mean_iou}


def confusion_matrix(logits: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    """How often each class (row) was taken for each (column) in one batch, (C, C)."""
    classes, guess, counted = logits.shape[1], logits.argmax(1).cpu(), y != ignore
    labels = y[counted]
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise UnseenError(
            f"labels run from {found}; a model with {classes} outputs takes 0 to {classes - 1}"
        )
    return torch.bincount(labels * classes + guess[counted], minlength=classes**2).reshape(
        classes, classes
    )


@torch.no_grad()
def confusion_of(net: Method | nn.Module, data: Dataset, ignore: int = -100) -> tuple[Tensor, int]:
    """How often each class (row) was taken for each (column), (C, C), and how many samples there were."""
    counts: Tensor | None = None
    samples = 0
    model = net.model if isinstance(net, Method) else net
    with evaluating(model):
        for batch in batches_of(data):
            pairs = confusion_matrix(model(*laid_out_for(model, batch.x)), batch.y, ignore)
            counts = pairs if counts is None else counts + pairs
            samples += len(batch.y)
    if counts is None or not counts.any():
        raise UnseenError("a domain to evaluate on has no labels that count")
    return counts, samples


def evaluate_metric(
    metric: str, net: Method | nn.Module, data: Dataset, ignore: int = -100
) -> Measured:
    """The metric of that name on all of the data."""
    confusion, samples = confusion_of(net, data, ignore)
    per_class = tuple(class_iou(confusion).tolist()) if metric == "miou" else ()
    return Measured(METRICS[metric](confusion), samples, per_class, confusion)
