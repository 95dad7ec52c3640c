"""Base class of adaptation methods, and their data sets."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unseen.adaptation.collapse import describe_collapse
from unseen.api import Batch, Method
from unseen.checks import check_int, check_positive
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.nn.calls import Output, call_for_logits, check_output
from unseen.nn.finite import find_not_finite, infinities
from unseen.nn.hooks import captured, laid_out_for
from unseen.nn.inputs import LABEL_KEYS, Inputs, describe_type
from unseen.nn.model_errors import model_errors
from unseen.nn.objectives import AnyLoss, make_objective, output_reader
from unseen.nn.places import channel_axis, find_place, width_at
from unseen.nn.wrapper import bare_model
from unseen.schema import refuse_unknown
from unseen.training.batches import check_data_set, training_batch
from unseen.training.loop import training_steps
from unseen.training.progress import TrainingProgress

FEW_LABELS: Final = "few labels"
UNLABELLED: Final = "the unlabelled target"
Needs = Literal["few labels", "the unlabelled target"]
PROBE = 16  # batches of the target whose predicted classes are compared with those of the start

log = logging.getLogger("unseen")


class Adaptation(nn.Module):
    """Adapt a trained model to a new domain. Subclasses write step(); `needs` names their data.

    Works on a copy of the model in eval mode: BatchNorm keeps the statistics of the source. The
    keyword arguments of __init__ are the settings, each an attribute of the same name.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[Needs]
    any_loss: ClassVar[bool] = False  # whether it works without classes
    settings_of = vars(Method)["settings_of"]

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int = 100,
        batch: int = 32,
        lr: float = 1e-4,
        embedding: str | None = None,
        ignore_label: int = -100,
        output: Output = None,
        loss: AnyLoss = "cross_entropy",
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown(self, unknown)
        if isinstance(model, Method):
            output = check_output(model.output) if output is None else output
            loss = model.loss if loss == "cross_entropy" else loss
            model = model.model
        self.model = copy.deepcopy(bare_model(model)).eval()
        self.output = check_output(output)
        self._names: tuple[str, ...] = ()  # of the model's keyword arguments
        self.steps = check_int("steps", steps, 1)
        self.batch = check_int("batch", batch, 1)
        self.lr = check_positive("lr", lr)
        self.embedding = embedding
        if embedding is not None:
            find_place(self.model, embedding, "embedding")
        self.ignore_label = check_int("ignore_label", ignore_label)
        self.loss, self.objective = loss, make_objective(loss, ignore=ignore_label)
        if not self.any_loss and not self.objective.classifies:
            raise UnseenError(
                f"{self.name} reads classes: it needs loss cross_entropy, not "
                f"{self.objective.name}; use fine_tune"
            )

    # ---- to be written by a subclass

    def step(self, source: Batch, target: Batch, done: int) -> dict[str, Tensor]:
        """Update once, after `done` other steps; return detached scalars, "loss" among them.

        The labels of an unlabelled target are all -1.
        """
        raise NotImplementedError

    def adapted(self) -> nn.Module:
        """Return the adapted model, of the same architecture as the given one."""
        return self.model

    # ---- shared by all adaptations

    def settings(self) -> dict[str, Any]:
        """Return the current settings."""
        return {name: getattr(self, name) for name in self.settings_of()}

    def run(
        self, source: Dataset, target: Dataset, *, seed: int = 0, progress: bool = True
    ) -> nn.Module:
        """Take all steps and return the adapted model; the given one is unchanged."""
        for name, data in (("source", source), ("target", target)):
            check_data_set(data, name)
        check_int("seed", seed)
        watched = type(self).needs == UNLABELLED
        if watched:
            target = Unlabelled(target)
        before = self._predicted(target, seed, self.model) if watched else None
        shown = TrainingProgress(self.name, self.steps, quiet=not progress)
        constants = infinities(self.model.state_dict())
        for _, logs in training_steps(self._update, self._batches(source, target, seed), shown):
            shown.metrics.update({name: float(value) for name, value in logs.items()})
        adapted = self.adapted().eval()
        if bad := find_not_finite(adapted.state_dict(), constants):
            raise UnseenError(
                f"{self.name}: {bad} of the adapted model is not finite: "
                f"lower lr, or look for NaN in the data (found after step {self.steps})"
            )
        if before is not None:
            after = self._predicted(target, seed, adapted)
            if problem := describe_collapse(self.name, before, after):
                log.warning(problem)
        return adapted

    @torch.no_grad()
    def _predicted(self, target: Dataset, seed: int, model: nn.Module) -> Tensor:
        """Return the classes that a model predicts for some samples of the target."""
        batches = (self._draw("target", target, seed, done).x for done in range(PROBE))
        return torch.cat([self._logits(x, model).argmax(1) for x in batches])

    def _update(self, batches: tuple[Batch, Batch, int]) -> dict[str, Tensor]:
        with model_errors(self.model, batches[1].x):
            return self.step(*batches)

    def _batches(
        self, source: Dataset, target: Dataset, seed: int
    ) -> Iterator[tuple[Batch, Batch, int]]:
        for done in range(self.steps):
            ours = self._draw("source", source, seed, done)
            yield ours, self._draw("target", target, seed, done), done

    def _draw(self, name: str, data: Dataset, seed: int, done: int) -> Batch:
        size = min(self.batch, len(data))  # type: ignore[arg-type]
        try:
            batch = training_batch(data, size, seed, done)
        except UnseenError as error:
            raise UnseenError(f"{name} of {self.name}: {error}") from error.__cause__
        x = laid_out_for(self.model, batch.x)
        self._names = x.names
        return Batch(x, batch.y.to(x[0].device))

    def _adam(self, *modules: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        learned = [p for module in modules for p in module.parameters() if p.requires_grad]
        return torch.optim.Adam(learned, self.lr if lr is None else lr, fused=True)

    def _layer(self) -> str:
        """Return the layer whose output is the embedding."""
        if self.embedding is None:
            raise UnseenError(
                f"{self.name} uses the model's embedding: name its last hidden layer, "
                'such as embedding="fc2"'
            )
        return self.embedding

    def _width(self) -> int:
        return width_at(self.model, self._layer())

    def _embed(self, x: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the embedding, averaged over space, and the logits, from one pass."""
        with captured(self.model, (self._layer(),)) as seen:
            logits = self._logits(x)
        z = seen[self._layer()]
        return (pool(z, channel_axis(self.model, self._layer())) if z.dim() > 2 else z), logits

    def _logits(self, x: Tensor | tuple[Tensor, ...], model: nn.Module | None = None) -> Tensor:
        """Return the logits of the model, or of a copy of it; a tensor is its only input."""
        x = Inputs([x], self._names) if isinstance(x, Tensor) else x
        reader = output_reader(self.objective, self.output)
        logits: Tensor = call_for_logits(model or self.model, x, reader)
        return logits

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.objective(logits, y)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step of this optimizer down the loss."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    # .backward() would also leave gradients in the opponent of a game, which must not move.
    for parameter, gradient in zip(
        held, torch.autograd.grad(loss, held, allow_unused=True), strict=True
    ):
        parameter.grad = gradient
    optimizer.step()


class Labelled(Dataset):
    """A few labelled samples, in memory."""

    def __init__(self, x: tuple[Tensor, ...], y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        x = tuple(t[index] for t in self.x)
        names = getattr(self.x, "names", ())
        return dict(zip(names, x, strict=True)) if names else x, self.y[index]


class Unlabelled(Dataset):
    """A data set whose labels are hidden: all are -1."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        sample = self.data[index]
        if isinstance(sample, Mapping):
            return {n: v for n, v in sample.items() if n not in LABEL_KEYS}, -1
        return sample[0], -1


def draw_shots(y: Tensor, shots: int, classes: int, generator: torch.Generator) -> Tensor:
    """Return the indices of `shots` random samples of each class."""
    check_int("shots", shots, 1)
    if not isinstance(y, Tensor):
        raise UnseenError(f"labels must be a tensor of class indices, not {describe_type(y)}")
    if y.dim() != 1:
        raise UnseenError(
            "shots are drawn by class, which needs one label per sample; "
            f"these labels have shape {tuple(y.shape)}"
        )
    picks = []
    for label in range(classes):
        of_class = torch.nonzero(y == label).flatten()
        if len(of_class) < shots:
            raise UnseenError(
                f"class {label} has {len(of_class)} labelled samples in this domain, "
                f"{shots} were asked for"
            )
        picks.append(of_class[torch.randperm(len(of_class), generator=generator)[:shots]])
    return torch.cat(picks)
