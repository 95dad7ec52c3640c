"""Core types: Batch, Domain, Task, Method. Read this first."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unseen.checks import check_int, check_number, check_path, check_positive
from unseen.detection.scoring import ScoreAt, Scoring
from unseen.errors import UnseenError
from unseen.functional.metrics import Metric
from unseen.nn.batch import Batch as Batch
from unseen.nn.hooks import evaluating
from unseen.nn.objectives import AnyLoss, make_objective
from unseen.nn.optimizers import AnyOptimizer, check_optimizer, make_optimizer
from unseen.nn.wrapper import ModelWrapper, Output, embedding_snapshot
from unseen.schema import hyperparameters, refuse_unknown
from unseen.schema.task import check_domain, check_task
from unseen.sharing import Sharing


@dataclass(frozen=True)
class Domain:
    """A named data set. A source has the splits train, val and test; a target test, maybe train."""

    name: str
    load: Callable[[str], Dataset[Any]]  # from the name of a split to a data set of (x, y)

    def __post_init__(self) -> None:
        check_domain(self)


@dataclass(frozen=True)
class Task:
    """One source domain, its unseen targets, a model, and the layers that noise enters."""

    name: str
    summary: str
    source: Domain
    targets: tuple[Domain, ...]
    classes: int
    model: Callable[..., nn.Module]  # its keyword-only arguments are settings of a run
    sites: tuple[str, ...]
    embedding: str
    # {"fast": {"steps": 500, ...}}; a mapping under a method's name is for that method only, and
    # "method" names the method that `unseen train` takes when none is given.
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    loss: AnyLoss = "cross_entropy"
    metric: Metric = "accuracy"
    variant: str = "default"  # distinguishes backbones, sources or protocols of one task
    ignore_label: int = -100
    class_names: tuple[str, ...] = ()
    score_at: ScoreAt = "site"  # where methods with learned noise compute their score
    record: Mapping[str, Any] = field(default_factory=dict)  # entries of a run's config.json

    def __post_init__(self) -> None:
        check_task(self, Domain, get_args(Metric), get_args(ScoreAt))

    def domain(self, name: str) -> Domain:
        """Return the domain of that name; "source" is the source."""
        known = {"source": self.source, **{d.name: d for d in (self.source, *self.targets)}}
        if not isinstance(name, str) or name not in known:
            raise UnseenError(f'no domain "{name}" in {self.name}; it has: {", ".join(known)}')
        return known[name]


class Method(Scoring, Sharing, ModelWrapper):
    """Learns from one domain. Write step(); the rest has defaults.

    The keyword arguments of __init__ are the hyperparameters, each kept as an attribute of the same
    name. `Scoring` adds uncertainty(x), predict_with_uncertainty(x), domain_score(x),
    threshold(n, rate) and alarm(x, rate), which ask `detector` (unseen.detection.detector);
    `Sharing` adds push_to_hub, save_pretrained and from_pretrained.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    legacy_defaults: ClassVar[dict[str, Any]] = {}  # of runs older than a setting
    steps_done: Tensor

    def __init__(
        self, model: nn.Module, *, sites: tuple[str, ...] | list[str] | str = (),
        embedding: str | None = None, lr: float = 1e-4, optimizer: AnyOptimizer = "adam",
        weight_decay: float = 0.0, ignore_label: int = -100, output: Output = None,
        loss: AnyLoss = "cross_entropy", class_weights: tuple[float, ...] | None = None,
        label_smoothing: float = 0.0, **unknown: Any,
    ) -> None:  # fmt: skip
        refuse_unknown(self, unknown)
        super().__init__(model, sites, embedding, output)
        self.lr = check_positive("lr", lr)
        self.optimizer = check_optimizer(optimizer)
        self.weight_decay = check_number("weight_decay", weight_decay, 0)
        self.ignore_label = check_int("ignore_label", ignore_label)
        self.objective = make_objective(loss, class_weights, label_smoothing, ignore_label)
        if embedding is None and not self.objective.classifies and not self.finds_embedding:
            self.finds_embedding = self.embedding_is_optional = True  # its score reads it
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Update once from a source batch; return detached scalars to log, "loss" among them."""
        raise NotImplementedError

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimizers whose state a checkpoint must hold."""
        raise NotImplementedError

    @torch.no_grad()
    def predict(self, x: Any) -> Tensor:
        """Return logits in eval mode. Evaluation uses them for every method."""
        with evaluating(self.model):
            return self.logits(self._ready(x))

    def warnings(self, steps: int) -> list[str]:
        """Return warnings to show before training, e.g. that all steps are warm-up."""
        return []

    def extra_state(self) -> dict[str, Tensor]:
        """Return training state beside weights and optimizers, for a checkpoint."""
        return {}

    def load_extra_state(self, state: dict[str, Tensor]) -> None:
        """Restore `extra_state`."""

    def snapshot(self, batch: Batch) -> dict[str, Tensor]:
        """Return small arrays for the figures of a report; must not change anything."""
        return embedding_snapshot(self.model, self.embedding, batch)

    @classmethod
    def settings_of(cls) -> dict[str, inspect.Parameter]:
        """Return the hyperparameters by name."""
        return hyperparameters(cls)

    def settings(self) -> dict[str, Any]:
        """Return the values of the hyperparameters."""
        return {name: getattr(self, name) for name in self.settings_of()}

    def save(self, folder: str | Path) -> None:
        """Write weights, settings and source statistics; `unseen.load` reads them."""
        path = check_path("folder", folder)
        # By name, because training stands above this module.
        importlib.import_module("unseen.training.checkpoint").save_method(self, path)

    def _optimizer(self, *groups: Any) -> torch.optim.Optimizer:
        """Make the optimizer of the settings over groups of parameters."""
        return make_optimizer(self.optimizer, groups, self.lr, self.weight_decay)
