"""Classification metrics of one confusion matrix; rows are labels, columns are predictions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unseen.errors import UnseenError


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


METRICS: dict[str, Callable[[Tensor], float]] = {"accuracy": accuracy, "miou": mean_iou}
