"""Metrics over a data set. Every method is evaluated by its own `predict`."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unseen.api import Method
from unseen.errors import SampleError, UnseenError
from unseen.functional.metrics import (
    METRICS,
    average_precisions,
    class_iou,
    confusion_matrix,
    mean_absolute_error,
)
from unseen.nn.calls import call_for_logits
from unseen.nn.hooks import evaluating, laid_out_for
from unseen.nn.inputs import check_labels, check_logits
from unseen.nn.model_errors import model_errors
from unseen.nn.target_shapes import check_shapes, fit_shape
from unseen.training.batches import batches_of, samples_named


class NoLabels(UnseenError):
    """The data set has no labels that count."""


class Evaluation(NamedTuple):
    """A metric on one domain, with the confusion matrix it comes from, if it does."""

    value: float
    n: int  # samples with a label
    per_class: tuple[float, ...] = ()  # IoU or AP; nan for a class that never occurs
    confusion: Tensor | None = None  # (C, C), rows are labels


def evaluate_metric(
    metric: str, net: Method | nn.Module, data: Dataset, ignore: int = -100
) -> Evaluation:
    """Compute a metric over a data set."""
    if metric not in METRICS:
        return _evaluate_outputs(metric, net, data, ignore)
    confusion, samples = confusion_over(net, data, ignore)
    per_class = tuple(class_iou(confusion).tolist()) if metric == "miou" else ()
    return Evaluation(METRICS[metric](confusion), samples, per_class, confusion)


@torch.no_grad()
def _evaluate_outputs(
    metric: str, net: Method | nn.Module, data: Dataset, ignore: int
) -> Evaluation:
    """Compute a metric that needs the outputs for all samples."""
    outputs, targets, samples = [], [], 0
    for batch in batches_of(data):
        output = _predict(net, batch.x).cpu()
        with samples_named(data, range(samples, samples + len(batch.y))):
            _refuse_nan(output)
            check_shapes(output, batch.y, "targets")
        outputs.append(output)
        targets.append(fit_shape(batch.y, output))
        samples += len(batch.y)
    output, y = torch.cat(outputs), torch.cat(targets)
    # A sample without a target has NaN; one without some of its labels the ignored one.
    known = ~y.flatten(1).isnan().any(1)
    if metric == "map":
        known &= (y != ignore).flatten(1).any(1)
    if not known.any():
        raise NoLabels("a domain to evaluate on has no labels that count")
    output, y = output[known], y[known]
    if metric == "mae":
        return Evaluation(mean_absolute_error(output, y), len(y))
    values = average_precisions(output, y, ignore)
    if values.isnan().all():
        raise UnseenError("mean average precision needs labels that are 1; a domain has none")
    return Evaluation(float(values.nanmean()), len(y), tuple(values.tolist()))


@torch.no_grad()
def confusion_over(
    net: Method | nn.Module, data: Dataset, ignore: int = -100
) -> tuple[Tensor, int]:
    """Return the confusion matrix over a data set, (C, C), and the number of labelled samples."""
    counts: Tensor | None = None
    samples = labelled = 0
    for batch in batches_of(data):
        logits = _predict(net, batch.x)
        with samples_named(data, range(samples, samples + len(batch.y))):
            check_labels(logits, batch.y, ignore)
            _refuse_nan(logits)
        pairs = confusion_matrix(logits, batch.y, ignore)
        counts = pairs if counts is None else counts + pairs
        samples += len(batch.y)
        labelled += int((batch.y != ignore).reshape(len(batch.y), -1).any(1).sum())
    if counts is None or not counts.any():
        raise NoLabels("a domain to evaluate on has no labels that count")
    return counts, labelled


def _refuse_nan(logits: Tensor) -> None:
    """Raise if a sample has no answer: the class of NaN would be counted as one."""
    if logits.sum().isnan() and (wrong := logits.isnan().flatten(1).any(1)).any():
        raise SampleError(
            int(wrong.nonzero()[0]), "the model's output is NaN: look for NaN in the weights"
        )


def with_model(net: Method, model: nn.Module) -> Method:
    """Return a copy of a method with the weights of another model of the same architecture."""
    net = copy.deepcopy(net)
    net.model.load_state_dict(model.state_dict())
    return net


def _predict(net: Method | nn.Module, x: tuple[Tensor, ...]) -> Tensor:
    if isinstance(net, Method):
        return net.predict(x)
    with model_errors(net, x), evaluating(net):
        logits: Tensor = call_for_logits(net, laid_out_for(net, x))
    check_logits(logits, len(x[0]))
    return logits
