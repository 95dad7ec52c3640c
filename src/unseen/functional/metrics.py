"""Metrics: of one confusion matrix (rows are labels, columns predictions), or of all outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from unseen.errors import UnseenError

Metric = Literal["accuracy", "miou", "map", "mae"]
ERRORS = ("mae",)  # metrics of which less is better


def confusion_matrix(logits: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    """Count the labels (rows) and predictions (columns) of one batch, (C, C)."""
    classes, prediction, counted = logits.shape[1], logits.argmax(1).cpu(), y != ignore
    labels = y[counted]
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise UnseenError(
            f"labels run from {int(labels.min())} to {int(labels.max())}; "
            f"a model with {classes} outputs takes 0 to {classes - 1}"
        )
    pairs = labels * classes + prediction[counted]
    return torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def accuracy(confusion: Tensor) -> float:
    """Return the fraction of correct predictions."""
    return float(confusion.diagonal().sum() / confusion.sum())


def class_iou(confusion: Tensor) -> Tensor:
    """Return the intersection over union of each class, (C,); nan for a class that never occurs."""
    correct = confusion.diagonal().double()
    return correct / (confusion.sum(0) + confusion.sum(1) - confusion.diagonal())


def mean_iou(confusion: Tensor) -> float:
    """Return the mean IoU over the classes that occur as a label or as a prediction."""
    return float(class_iou(confusion).nanmean())


def average_precisions(output: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    """Return the average precision of each label, (N, L, ...) -> (L,); nan if it never occurs."""
    from sklearn.metrics import average_precision_score  # slow to import

    values = []
    for scores, labels in zip(output.movedim(1, 0), y.movedim(1, 0), strict=True):
        counted = labels != ignore
        truth, score = labels[counted].round(), scores[counted]
        some = bool((truth == 1).any())
        values.append(average_precision_score(truth.numpy(), score.numpy()) if some else torch.nan)
    return torch.tensor(values, dtype=torch.float64)


def mean_absolute_error(output: Tensor, y: Tensor) -> float:
    """Return the mean absolute difference of outputs and targets."""
    return float((output.double() - y.double()).abs().mean())


METRICS: dict[str, Callable[[Tensor], float]] = {"accuracy": accuracy, "miou": mean_iou}
