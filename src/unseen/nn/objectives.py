"""Losses: what a method minimizes, how it checks targets, and what mixup does to them.

An objective has the mean over a batch, the loss of each sample, the loss of features that are mixed
with their own perturbed version (Eq. 3), and the loss of pairs of samples (the baseline mixup).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.checks import check_fraction, check_positive
from unseen.errors import SampleError, UnseenError
from unseen.functional.losses import cross_entropy
from unseen.functional.mixup import mix_targets, mixed_loss, smooth_binary
from unseen.nn.calls import Output, logits_from
from unseen.nn.inputs import check_targets, warn_of_probabilities
from unseen.nn.ranks import Weigh, ranks
from unseen.nn.target_shapes import check_shapes, fit_shape
from unseen.user_code import describe_error, describe_failure

LossName = Literal["cross_entropy", "bce", "mse", "huber"]
LossFunction = Callable[[Tensor, Tensor], Tensor]  # (output, target) -> loss of each sample
AnyLoss = LossName | LossFunction
LOSSES: tuple[str, ...] = get_args(LossName)


def balanced(loss: Tensor, output: Tensor, y: Tensor, weigh: Weigh) -> Tensor:
    """Return the part of the own rows in the mean loss of all, given their mean loss."""
    if not ranks().weighted:
        return loss
    factor = ranks().balance(weigh, y)
    if ranks().counts_elsewhere and not weigh(y):  # a mean of no label is not a number
        loss = (0 * output).sum()
    return loss * factor


class Objective(ABC):
    """A loss, with all that depends on the kind of targets."""

    classifies: ClassVar[bool] = False  # whether the largest output is the predicted class

    def __init__(self, loss: AnyLoss, ignore: int = -100) -> None:
        self.loss, self.ignore = loss, ignore
        self.class_weights: tuple[float, ...] | None = None
        self.label_smoothing = 0.0

    @property
    def name(self) -> str:
        return self.loss if isinstance(self.loss, str) else "a function"

    def __call__(self, output: Any, y: Tensor) -> Tensor:
        """Check the targets and return the mean loss."""
        self.check(output, y)
        return self.mean(output, y)

    @abstractmethod
    def check(self, output: Any, y: Tensor) -> None:
        """Raise unless the targets fit the output."""

    @abstractmethod
    def per_sample(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, (N,)."""

    def mean(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss; see `weight_of` for the part of one process."""
        return self._balanced(self.per_sample(output, y).mean(), output, y)

    def weight_of(self, y: Tensor) -> float | Tensor:
        """Return the sum of the weights by which these targets count in the mean loss."""
        return len(y)

    def _balanced(self, loss: Tensor, output: Tensor, y: Tensor) -> Tensor:
        return balanced(loss, output, y, self.weight_of)

    def mixed(
        self, output: Tensor, y: Tensor, lam: Tensor, smoothing: Tensor, rho: float
    ) -> Tensor:
        """Return the loss of mixed rows (K*B, ...); y is (B, ...), lam and smoothing are (K, B).

        A row mixes the features of one sample: without smoothing its target is that sample's.
        """
        return self.mean(output, torch.cat([y] * lam.shape[0]))

    def paired(self, output: Tensor, y: Tensor, partner: Tensor, lam: float) -> Tensor:
        """Return the loss of pairs of samples, of which the first has the share lam."""
        own, other = (self.per_sample(output, t) for t in (y, partner))
        return (lam * own + (1 - lam) * other).mean()


class CrossEntropy(Objective):
    """Cross-entropy over class indices (N, ...), with optional class weights and smoothing."""

    classifies = True

    def __init__(
        self,
        ignore: int = -100,
        class_weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__("cross_entropy", ignore)
        self._has_seen_output = False
        self.label_smoothing = check_fraction("label_smoothing", label_smoothing, zero=True)
        if class_weights is not None:
            if isinstance(class_weights, Tensor) or hasattr(class_weights, "tolist"):
                class_weights = class_weights.tolist()
            values = class_weights
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise UnseenError(f"class_weights must be a list of numbers, not {values!r}")
            self.class_weights = tuple(check_positive("class_weights", w) for w in values)

    @property
    def plain(self) -> bool:
        return self.class_weights is None and not self.label_smoothing

    def check(self, output: Any, y: Tensor) -> None:
        check_targets(output, y, self.ignore)
        if self.class_weights is not None and len(self.class_weights) != output.shape[1]:
            raise UnseenError(
                f"class_weights has {len(self.class_weights)} numbers, the model has "
                f"{output.shape[1]} outputs: give one for each class"
            )
        if not self._has_seen_output:
            self._has_seen_output = True
            warn_of_probabilities(output)

    def mean(self, output: Tensor, y: Tensor) -> Tensor:
        loss = cross_entropy(output, y, self.ignore) if self.plain else self._loss(output, y)
        return self._balanced(loss, output, y)

    def weight_of(self, y: Tensor) -> float | Tensor:
        counted = y != self.ignore
        if self.class_weights is None:
            return counted.sum()
        return torch.tensor(self.class_weights, device=y.device)[y.where(counted, 0)][counted].sum()

    def per_sample(self, output: Tensor, y: Tensor) -> Tensor:
        losses = self._loss(output, y, "none").reshape(len(y), -1)
        return losses.sum(1) / (y != self.ignore).reshape(len(y), -1).sum(1).clamp(min=1)

    def mixed(
        self, output: Tensor, y: Tensor, lam: Tensor, smoothing: Tensor, rho: float
    ) -> Tensor:
        if self.plain:
            loss = mixed_loss(output, y, lam, smoothing, rho, self.ignore)
            return self._balanced(loss, output, y)
        targets = torch.cat([y] * lam.shape[0])
        counted, classes = targets != self.ignore, output.shape[1]
        labels = targets.where(counted, 0)
        soft = mix_targets(labels, lam.flatten(), smoothing.flatten(), classes, rho)
        soft = soft.lerp(torch.full_like(soft, 1 / classes), self.label_smoothing)
        each = -(soft.to(output) * output.log_softmax(1)).sum(1)
        weight = self._weights(output)
        share = counted.to(each) if weight is None else counted * weight[labels]
        return self._balanced((each * share).sum() / share.sum(), output, y)

    def paired(self, output: Tensor, y: Tensor, partner: Tensor, lam: float) -> Tensor:
        both = (y != self.ignore) & (partner != self.ignore)
        own, other = (self._loss(output, t.where(both, self.ignore), "sum") for t in (y, partner))
        loss = (lam * own + (1 - lam) * other) / both.sum().clamp(min=1)
        return self._balanced(loss, output, y.where(both, self.ignore))

    def _loss(self, output: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(
            output, y, self._weights(output), ignore_index=self.ignore, reduction=reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip

    def _weights(self, output: Tensor) -> Tensor | None:
        return None if self.class_weights is None else output.new_tensor(self.class_weights)


class BinaryCrossEntropy(Objective):
    """Binary cross-entropy of several labels (N, L), 0 or 1 each; the ignored label may be absent.

    Mixup interpolates the labels; its smoothing moves them towards 1/2, to rho and 1 - rho.
    """

    def check(self, output: Any, y: Tensor) -> None:
        check_shapes(output, y, "labels")
        counted = y[y != self.ignore]
        if counted.numel() == 0:
            if ranks().counts_elsewhere:
                return
            raise UnseenError(f"every label of this batch is the ignored one ({self.ignore})")
        if counted.min() < 0 or counted.max() > 1 or counted.isnan().any():
            wrong = (y != self.ignore) & ~((y >= 0) & (y <= 1))
            raise SampleError(
                int(wrong.reshape(len(y), -1).any(1).nonzero()[0]),
                "labels of bce must be 0 or 1, one for each output",
            )

    def per_sample(self, output: Tensor, y: Tensor) -> Tensor:
        y = fit_shape(y, output)
        return self._average(output, y.where(y != self.ignore, 0), y != self.ignore)

    def mean(self, output: Tensor, y: Tensor) -> Tensor:
        y = fit_shape(y, output)
        counted = y != self.ignore
        losses = F.binary_cross_entropy_with_logits(output, y.where(counted, 0), reduction="none")
        return self._balanced((losses * counted).sum() / counted.sum(), output, y)

    def weight_of(self, y: Tensor) -> float | Tensor:
        return (y != self.ignore).sum()

    def mixed(
        self, output: Tensor, y: Tensor, lam: Tensor, smoothing: Tensor, rho: float
    ) -> Tensor:
        y = fit_shape(torch.cat([y] * lam.shape[0]), output)
        counted = y != self.ignore
        labels = y.where(counted, 0)
        per_row = (-1, *[1] * (y.dim() - 1))
        share = ((1 - lam) * smoothing).reshape(per_row).to(output)
        soft = labels.lerp(smooth_binary(labels, rho), share)
        return self._average(output, soft, counted).mean()

    def paired(self, output: Tensor, y: Tensor, partner: Tensor, lam: float) -> Tensor:
        y, partner = fit_shape(y, output), fit_shape(partner, output)
        counted = (y != self.ignore) & (partner != self.ignore)
        mixed = lam * y.where(counted, 0) + (1 - lam) * partner.where(counted, 0)
        return self._average(output, mixed, counted).mean()

    def _average(self, output: Tensor, y: Tensor, counted: Tensor) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(output, y, reduction="none")
        rows, kept = (losses * counted).flatten(1), counted.flatten(1)
        return rows.sum(1) / kept.sum(1).clamp(min=1)


class Regression(Objective):
    """Squared error, or Huber's with delta 1. Mixup interpolates targets and smooths nothing."""

    def check(self, output: Any, y: Tensor) -> None:
        check_shapes(output, y, "targets")
        if y.is_floating_point() and not y.isfinite().all():
            bad = ~y.isfinite().reshape(len(y), -1).all(1)
            raise SampleError(int(bad.nonzero()[0]), "the target is not a finite number")

    def per_sample(self, output: Tensor, y: Tensor) -> Tensor:
        error = F.huber_loss if self.loss == "huber" else F.mse_loss
        return error(output, fit_shape(y, output), reduction="none").flatten(1).mean(1)

    def paired(self, output: Tensor, y: Tensor, partner: Tensor, lam: float) -> Tensor:
        y, partner = fit_shape(y, output), fit_shape(partner, output)
        return self.mean(output, lam * y + (1 - lam) * partner)


class OwnLoss(Objective):
    """A user's function of output and target. Mixup leaves its targets as they are.

    Pairs of samples have the weighted sum of both losses.
    """

    def check(self, output: Any, y: Tensor) -> None:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            raise UnseenError("the model must return a tensor of floats")

    def per_sample(self, output: Tensor, y: Tensor) -> Tensor:
        assert not isinstance(self.loss, str)
        try:
            losses = self.loss(output, y)
        except Exception as error:  # a user's function may raise anything
            problem = describe_failure(error) or describe_error(error)
            raise UnseenError(
                f"the function given as loss failed on output {tuple(output.shape)} and target "
                f"{tuple(y.shape)}: {problem}"
            ) from error
        if not isinstance(losses, Tensor) or losses.dim() == 0 or len(losses) != len(output):
            got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise UnseenError(
                f"the function given as loss must return one loss for each of the {len(output)} "
                f'samples, as with reduction="none"; it returned {got}'
            )
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


class HasObjective:
    """Gives a method its loss, as the settings loss, class_weights and label_smoothing."""

    objective: Objective = CrossEntropy()
    output: Output
    name: ClassVar[str]

    @property
    def output_reader(self) -> Output:
        """Where a model's output holds the numbers that the loss takes, at least (N, 1)."""
        return output_reader(self.objective, self.output)

    def _needs_classes(self, why: str) -> None:
        """Raise unless the method predicts classes."""
        if not self.objective.classifies:
            raise UnseenError(
                f"{self.name} {why}: it needs loss cross_entropy, not {self.objective.name}"
            )

    @property
    def loss(self) -> AnyLoss:
        return self.objective.loss

    @property
    def class_weights(self) -> tuple[float, ...] | None:
        return self.objective.class_weights

    @property
    def label_smoothing(self) -> float:
        return self.objective.label_smoothing


def make_objective(
    loss: AnyLoss,
    class_weights: Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    ignore: int = -100,
) -> Objective:
    """Return the objective of a loss's name, or of a function (output, target) -> losses."""
    if loss == "cross_entropy":
        return CrossEntropy(ignore, class_weights, label_smoothing)
    if isinstance(loss, type):
        raise UnseenError(
            f'loss is the class {loss.__name__}: give an object, {loss.__name__}(reduction="none")'
        )
    if not (loss in LOSSES or (callable(loss) and not isinstance(loss, str))):
        raise UnseenError(
            f"loss must be one of {', '.join(LOSSES)}, or a function (output, target) -> loss of "
            f"each sample, not {loss!r}"
        )
    if class_weights is not None or label_smoothing:
        given = "class_weights" if class_weights is not None else "label_smoothing"
        raise UnseenError(f"{given} is for loss cross_entropy; leave it out")
    if loss == "bce":
        return BinaryCrossEntropy(loss, ignore)
    return Regression(loss, ignore) if isinstance(loss, str) else OwnLoss(loss, ignore)


def output_reader(objective: Objective, output: Output) -> Output:
    """Return where the numbers for a loss are in a model's output; (N,) becomes (N, 1)."""
    return output if objective.classifies else partial(_with_column, output)


def _with_column(output: Output, out: Any) -> Any:
    values = logits_from(out, output)
    column = isinstance(values, Tensor) and values.dim() == 1
    return values.unsqueeze(1) if column else values
