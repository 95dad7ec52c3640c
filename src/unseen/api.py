"""The words everything else is said in: Batch, Domain, Task, Method. Read this first."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unseen.checks import check_choice, check_number, check_positive
from unseen.detection.source_statistics import (
    EmbeddingShiftPredictor,
    SourceStatistics,
    lack_of_confidence,
)
from unseen.errors import UnseenError
from unseen.functional.losses import cross_entropy as cross_entropy
from unseen.nn.hooks import captured, evaluating, laid_out_for, perturbable_layers, submodule
from unseen.nn.inputs import check_targets as check_targets
from unseen.nn.inputs import describe_type
from unseen.nn.inputs import images as images
from unseen.nn.inputs import in_unit_range as in_unit_range
from unseen.nn.inputs import inputs as inputs
from unseen.schema import hyperparameters

ScoreAt = Literal["site", "embedding"]


class Batch(NamedTuple):
    """Inputs and targets; the inputs are always a tuple, the model is always called as model(*x)."""

    x: tuple[Tensor, ...]
    y: Tensor

    @classmethod
    def of(cls, pair: Any) -> Batch:
        """A batch from what a loader yields: (x, y), or ((x1, x2, ...), y)."""
        if isinstance(pair, Batch):
            return pair
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise UnseenError(f"the loader must yield (x, y), it yielded {describe_type(pair)}")
        x, y = pair
        x = inputs(x)
        if not isinstance(y, Tensor):
            raise UnseenError(
                f"the loader must yield y as a tensor of class numbers, it yielded {describe_type(y)}"
            )
        return cls(x, y if y.is_floating_point() or y.dtype == torch.bool else y.long())

    def to(self, device: torch.device | str) -> Batch:
        return Batch(tuple(t.to(device) for t in self.x), self.y.to(device))


@dataclass(frozen=True)
class Domain:
    """A named data set: load(split) gives a data set of (x, y).

    A source has the splits train, val (held out: it calibrates the alarm) and test; a target has test, and train if it can
    be adapted to (the pool that few-shot labels are drawn from).
    """

    name: str
    load: Callable[[str], Dataset]


@dataclass(frozen=True)
class Task:
    """One source domain, its unseen targets, a model, and where in it noise enters."""

    name: str
    summary: str
    source: Domain
    targets: tuple[Domain, ...]
    classes: int
    model: Callable[
        ..., nn.Module
    ]  # its keyword-only arguments are settings of a run, such as width
    sites: tuple[str, ...]
    embedding: str
    # Named settings such as {"fast": {"steps": 500, "batch": 32}}; a mapping under a method's name is for that method only.
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metric: Literal["accuracy", "miou"] = "accuracy"
    variant: str = "default"  # tells backbones, sources or protocols of one task apart
    ignore_label: int = -100
    class_names: tuple[str, ...] = ()
    score_at: ScoreAt = "site"  # where a run's score is read, of methods that learn noise

    def __post_init__(self) -> None:
        if not self.targets:
            raise UnseenError(
                f"task {self.name} has no targets: a task needs at least one unseen domain"
            )
        if self.metric not in typing.get_args(typing.get_type_hints(Task)["metric"]):
            raise UnseenError(
                f'task {self.name}: metric "{self.metric}" is not known; there are: accuracy, miou'
            )
        if self.class_names and len(self.class_names) != self.classes:
            raise UnseenError(
                f"task {self.name} has {self.classes} classes and names {len(self.class_names)} of them"
            )
        names = [self.source.name, *(d.name for d in self.targets)]
        if len(set(names)) < len(names):
            raise UnseenError(f"task {self.name}: two domains have one name: {', '.join(names)}")

    def domain(self, name: str) -> Domain:
        """The domain of that name; "source" names the source."""
        known = {
            "source": self.source,
            self.source.name: self.source,
            **{d.name: d for d in self.targets},
        }
        if name not in known:
            raise UnseenError(f'no domain "{name}" in {self.name}; it has: {", ".join(known)}')
        return known[name]


NO_STATISTICS = "no source statistics yet: train with unseen.training.fit, or call unseen.calibrate(net, loader)"


class Method(nn.Module):
    """Learn from one domain. Write step(); the rest has honest defaults.

    The keyword arguments of __init__ are the hyperparameters, each kept as an attribute of the same name: the
    configuration of a run, the command line and the docs read them from there.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    legacy_defaults: ClassVar[
        dict[str, Any]
    ] = {}  # what runs older than a setting did, where that is not its default
    steps_done: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        sites: tuple[str, ...] | list[str] | str = (),
        embedding: str | None = None,
        lr: float = 1e-4,
        optimizer: Literal["adam", "sgd"] = "adam",
        weight_decay: float = 0.0,
        ignore_label: int = -100,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise UnseenError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        if not any(p.requires_grad for p in model.parameters()):
            raise UnseenError("the model has no trainable parameters")
        self.model = model
        self.sites = self._checked_sites(sites)
        self.embedding = embedding
        if embedding is not None:
            submodule(model, embedding, "embedding")
        self.lr = check_positive("lr", lr)
        self.optimizer: Literal["adam", "sgd"] = check_choice(
            "optimizer", optimizer, ("adam", "sgd")
        )
        self.weight_decay = check_number("weight_decay", weight_decay, 0)
        self.ignore_label = ignore_label
        self.reference: SourceStatistics | None = None
        self.reader: EmbeddingShiftPredictor | None = None  # reads the score at the embedding
        self.register_buffer("steps_done", torch.zeros((), dtype=torch.int64))

    def _checked_sites(self, sites: Any) -> tuple[str, ...]:
        if sites == "auto":
            layers = perturbable_layers(self.model)
            if not layers:
                raise UnseenError('sites="auto" found no conv or linear layer in the model')
            return (layers[0],)
        names = (sites,) if isinstance(sites, str) else tuple(sites)
        for name in names:
            submodule(self.model, name, "site")
        if len(set(names)) < len(names):
            raise UnseenError(f"a site is named twice: {', '.join(names)}")
        return names

    @property
    def score_name(self) -> str:
        """What `uncertainty` measures."""
        return "max_softmax"

    @property
    def score_at(self) -> ScoreAt:
        """Where it is read."""
        return "site" if self.reader is None else "embedding"

    # ---- what a method writes

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """One update from one batch of the source; detached scalars to log, "loss" among them."""
        raise NotImplementedError

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimizers whose state a checkpoint must hold."""
        raise NotImplementedError

    def warnings(self, steps: int) -> list[str]:
        """What a user should be told before so many steps are trained, such as that the method would never start."""
        return []

    def extra_state(self) -> dict[str, Tensor]:
        """What training remembers beside weights and optimizers, for a checkpoint; a finished model does without it."""
        return {}

    def load_extra_state(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` gave."""

    def snapshot(self, batch: Batch) -> dict[str, Tensor]:
        """Small arrays of the moment for the paper's figures; must change nothing."""
        if self.embedding is None:
            return {}
        with (
            torch.no_grad(),
            evaluating(self.model),
            captured(self.model, (self.embedding,)) as seen,
        ):
            self.model(*batch.x)
        labels = (
            {} if batch.y.dim() > 1 else {"labels": batch.y}
        )  # maps of labels would be most of a run's size
        return {"embedding": seen[self.embedding].flatten(1)[:, :256], **labels}

    # ---- what every method has

    @classmethod
    def settings_of(cls) -> dict[str, inspect.Parameter]:
        """The hyperparameters, by name."""
        return hyperparameters(cls)

    def settings(self) -> dict[str, Any]:
        """The hyperparameters in force."""
        return {name: getattr(self, name) for name in self.settings_of()}

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @torch.no_grad()
    def predict(self, x: Any) -> Tensor:
        """Logits of x, in eval mode."""
        with evaluating(self.model):
            return self.model(*self._ready(x))

    @torch.no_grad()
    def uncertainty(self, x: Any) -> Tensor:
        """One score per sample, (N,): higher means further from what the model knows."""
        return self.score(self.score_features(x))

    @torch.no_grad()
    def score_features(self, x: Any) -> Tensor:
        """What the domain score is made of, (N, F): a domain's score is `score` of their mean over its samples."""
        return lack_of_confidence(self.predict(x))

    @torch.no_grad()
    def predict_with_features(self, x: Any) -> tuple[Tensor, Tensor]:
        """Logits and score features, in one pass where the method can."""
        logits = self.predict(x)
        plain = type(self).score_features is Method.score_features
        return logits, lack_of_confidence(logits) if plain else self.score_features(x)

    def transport(self, x: Any) -> Tensor:
        """What a reader of the score at the embedding is fitted to: see `sigma_score`."""
        raise UnseenError(
            f"{self.name} has no learned noise: its score cannot be read at the embedding"
        )

    def score(self, features: Tensor) -> Tensor:
        """Score of (means of) score features, (..., F) -> (...)."""
        return features.mean(-1)

    def domain_score(self, x: Any) -> float:
        """One score for all of x, as samples of one domain."""
        if len(inputs(x)[0]) == 0:
            raise UnseenError("a domain's score needs at least one sample, x is empty")
        value = float(self.score(self.score_features(x).mean(0)))
        if not math.isfinite(value):
            raise UnseenError(
                f"the score of these samples is {value}: look for NaN in them or in the model's weights"
            )
        return value

    def threshold(self, n: int, false_alarm_rate: float = 0.01) -> float:
        """The domain score that n fresh source samples exceed with at most that chance."""
        if self.reference is None:
            raise UnseenError(NO_STATISTICS)
        key = (self.score_name, n, false_alarm_rate)
        if key not in self.reference.thresholds:
            self.reference.thresholds[key] = self.reference.threshold(
                self.score, n, false_alarm_rate
            )
        return self.reference.thresholds[key]

    def alarm(self, x: Any, false_alarm_rate: float = 0.01) -> bool:
        """Are these samples further from the source than chance allows?"""
        return self.domain_score(x) > self.threshold(len(inputs(x)[0]), false_alarm_rate)

    def forward(self, *x: Tensor) -> Tensor:
        """The model's own output, so that a method can stand wherever its model can."""
        return self.model(*x)

    def save(self, folder: str | Path) -> None:
        """Write weights, settings and source statistics to a folder; `unseen.load` reads them back."""
        from unseen.training.checkpoint import save_method

        save_method(self, Path(folder))

    def _ready(self, x: Any) -> tuple[Tensor, ...]:
        return laid_out_for(self.model, inputs(x))

    def _optimizer(self, *groups: Any) -> torch.optim.Optimizer:
        """The optimizer that the settings ask for, over the model's parameters and whatever else the method learns."""
        wanted = [g if isinstance(g, dict) else {"params": list(g)} for g in groups]
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                wanted,
                self.lr,
                momentum=0.9,
                nesterov=True,
                weight_decay=self.weight_decay,
                fused=True,
            )
        return torch.optim.Adam(wanted, self.lr, weight_decay=self.weight_decay, fused=True)

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}
