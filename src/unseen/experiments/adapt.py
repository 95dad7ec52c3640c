"""Adapt a finished run to an unseen domain; report the metric on that domain and on the source."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import Dataset, Subset

from unseen.adaptation import (
    FEW_LABELS,
    Adaptation,
    Labelled,
    adaptation_named,
    adapted_model,
    draw_shots,
)
from unseen.api import Method, Task
from unseen.checks import check_fraction, check_int
from unseen.detection.sampling import MAX_SAMPLES
from unseen.errors import UnseenError
from unseen.files import locked
from unseen.functional.metrics import ERRORS
from unseen.schema import construct_settings
from unseen.training.batches import batches_of, load_split, random_part, take
from unseen.training.checkpoint import save_method
from unseen.training.evaluation import NoLabels, evaluate_metric, with_model
from unseen.training.fit import calibrate
from unseen.training.identity import check_seed, commit_here
from unseen.training.run import DONE, RECORDS, Run, record_lines

BISECTIONS = 7  # of the interpolation coefficient: determine it to 1 %


@dataclass(frozen=True)
class Plan:
    """How to adapt: the method, its settings, the number of labels and the bound on the source."""

    by: type[Adaptation]
    settings: dict[str, Any]
    shots: int | None  # labels per class; None for methods that use the unlabelled target
    keep_source: float | None = None  # how much the metric on the held-out source may fall, in 0..1

    @classmethod
    def of(
        cls,
        net: Method,
        by: str,
        shots: int | None,
        settings: Mapping[str, Any],
        keep_source: float | None = None,
    ) -> Plan:
        """Return a plan after checking the settings and the number of labels."""
        kind = adaptation_named(by)
        construct_settings(kind.settings_of(), settings, f"settings of {by}", by)
        if cls.needs_labels(by) and shots is None:
            raise UnseenError(
                f"{by} needs labels: give their number per class, e.g. --shots 7; without labels, "
                "adapt --with a method that needs none, see unseen adaptations"
            )
        if not cls.needs_labels(by) and shots is not None:
            raise UnseenError(f"{by} learns from {kind.needs}: omit --shots")
        if shots is not None:
            check_int("shots", shots, 1)
        if keep_source is not None:
            name = "keep_source (0.02 allows the source to lose 2 points)"
            check_fraction(name, keep_source, zero=True, one=True)
        common = {
            "embedding": net.embedding,
            "ignore_label": net.ignore_label,
            "output": net.output,
            "loss": net.loss,
        }
        chosen = kind(net.model, **{**common, **settings}).settings()
        if net.objective.classifies:  # the only loss that there was when older grids were run
            del chosen["loss"]
        return cls(kind, chosen, shots, keep_source)

    @staticmethod
    def needs_labels(by: str) -> bool:
        return adaptation_named(by).needs == FEW_LABELS

    def to_config(self) -> dict[str, Any]:
        return {
            "with": self.by.name,
            "settings": self.settings,
            "shots": self.shots,
            "keep_source": self.keep_source,
        }


class AdaptationData:
    """The splits that adaptation to one unseen domain needs, each loaded once."""

    def __init__(self, task: Task, domain: str | None) -> None:
        names = [d.name for d in task.targets]
        choices = ", ".join(names)
        if domain is None and len(names) > 1:
            raise UnseenError(
                f"{task.name} has several unseen domains: add --domain, one of {choices}"
            )
        self.task, self.target = task, task.domain(names[0] if domain is None else domain)
        if self.target is task.source:
            raise UnseenError(f"{domain} is the source: name an unseen domain, one of {choices}")
        self.pool, self.test = load_split(self.target, "train"), load_split(self.target, "test")
        self.source, self.held_out, self.source_test = (
            load_split(task.source, split) for split in ("train", "val", "test")
        )

    @cached_property
    def labels(self) -> torch.Tensor:
        """Labels of the pool; cached because reading them reads the whole pool."""
        return torch.cat([batch.y for batch in batches_of(self.pool)])

    def shots(self, shots: int, seed: int) -> Labelled:
        """Draw `shots` labelled samples of each class; without classes, that many in all."""
        generator = torch.Generator().manual_seed(seed)
        if self.task.loss != "cross_entropy":
            # Files without a label have NaN.
            known = ~self.labels.isnan().reshape(len(self.labels), -1).any(1)
            labelled = known.nonzero().flatten()
            if len(labelled) < shots:
                raise UnseenError(
                    f"{self.target.name} has {len(labelled)} labelled samples to adapt with, "
                    f"{shots} were asked for"
                )
            order = torch.randperm(len(labelled), generator=generator)[:shots]
            return Labelled(*take(self.pool, labelled[order]))
        chosen = draw_shots(self.labels, shots, self.task.classes, generator)
        return Labelled(*take(self.pool, chosen))

    def evaluate(self, net: Method, data: Dataset, model: nn.Module | None = None) -> float:
        """Return the task's metric of the method, with the weights of `model` if one is given."""
        net = net if model is None else with_model(net, model)
        return evaluate_metric(self.task.metric, net, data, net.ignore_label).value

    def evaluate_target(self, net: Method, labelled: bool) -> float | None:
        """Return the metric on the target; None if its files have no labels and need none."""
        try:
            return self.evaluate(net, self.test)
        except NoLabels:
            if labelled:
                raise UnseenError(
                    f"{self.target.name} has no labels to adapt with and to test on: label some of "
                    "its samples, or adapt --with a method that needs none, see unseen adaptations"
                ) from None
            if not self.task.record:
                raise
            return None


class AdaptedModel(NamedTuple):
    """An adapted model and its interpolation coefficient: 0 is the start, 1 is fully adapted."""

    model: nn.Module
    coefficient: float


def adapt_once(
    net: Method, data: AdaptationData, plan: Plan, seed: int, progress: bool = True
) -> AdaptedModel:
    """Adapt a method; the seed determines the shots and all other random numbers."""
    target = data.pool if plan.shots is None else data.shots(plan.shots, seed)
    adapted = adapted_model(
        plan.by.name,
        net.model,
        data.source,
        target,
        seed=seed,
        progress=progress,
        **plan.settings,
    )
    if plan.keep_source is None:
        return AdaptedModel(adapted, 1.0)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(data.held_out), generator=generator)  # type: ignore[arg-type]
    sample = Subset(data.held_out, order[:MAX_SAMPLES].tolist())

    sign = -1 if data.task.metric in ERRORS else 1

    def source_metric(model: nn.Module) -> float:
        return sign * data.evaluate(net, sample, model)

    return limit_source_loss(net.model, adapted, source_metric, plan.keep_source)


def limit_source_loss(
    start: nn.Module, adapted: nn.Module, metric: Callable[[nn.Module], float], bound: float
) -> AdaptedModel:
    """Return the model closest to the adapted one that loses at most `bound` of the metric.

    Candidates lie on the line between the weights of the start and of the adapted model. The
    coefficient is bisected: the result keeps the bound even where the metric is not monotonic.
    """
    least = metric(start) - bound - 1e-9  # accuracies are sums of floats
    if metric(adapted) >= least:
        return AdaptedModel(adapted, 1.0)
    best, low, high = interpolate(start, adapted, 0.0), 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        candidate = interpolate(start, adapted, middle)
        if metric(candidate) >= least:
            best, low = candidate, middle
        else:
            high = middle
    return AdaptedModel(best, low)


def interpolate(start: nn.Module, adapted: nn.Module, coefficient: float) -> nn.Module:
    """Return a model with weights between the start (0) and the adapted model (1)."""
    model = copy.deepcopy(adapted)
    first, last = start.state_dict(), adapted.state_dict()

    def between(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # Infinities of a mask are equal in both; between them lies NaN.
        return torch.where(a == b, a, torch.lerp(a, b, coefficient))

    model.load_state_dict(
        {
            name: between(first[name], t) if t.is_floating_point() else first[name]
            for name, t in last.items()
        }
    )
    return model


def adapt(
    run: Run,
    task: Task,
    domain: str | None = None,
    shots: int | None = None,
    *,
    by: str = "fine_tune",
    draws: int | None = None,
    settings: Mapping[str, Any] | None = None,
    keep_source: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    device: str = "auto",
    progress: bool = True,
) -> dict[str, Any]:
    """Adapt a run `draws` times, each with new shots, and return the metrics before and after.

    The first adapted model is saved as a run in `out`.
    """
    net = run.load(task, device)
    plan = Plan.of(net, by, shots, settings or {}, keep_source)
    draws = (5 if plan.shots else 1) if draws is None else check_int("draws", draws, 1)
    check_seed(seed)
    if out is not None:
        _check_new(Path(out))
    data = AdaptationData(task, domain)
    # Evaluated before anything is trained: a domain whose labels are missed fails here.
    source_before = data.evaluate(net, data.source_test)
    before = data.evaluate_target(net, labelled=plan.shots is not None)
    after, source_after, coefficients = list[float](), list[float](), list[float]()
    for draw in range(draws):
        adapted = adapt_once(net, data, plan, draw_seed(seed, draw), progress)
        if before is not None:
            after.append(data.evaluate(net, data.test, adapted.model))
        source_after.append(data.evaluate(net, data.source_test, adapted.model))
        coefficients.append(adapted.coefficient)
        if draw == 0 and out is not None:
            metrics = {task.source.name: source_after[0]}
            metrics |= {data.target.name: after[0]} if after else {}
            config = {
                **plan.to_config(),
                "seed": draw_seed(seed, draw),
                "share": adapted.coefficient,
            }
            save_adapted(run, net, data, adapted.model, config, metrics, Path(out))
    spread, source_spread = (
        torch.tensor(values, dtype=torch.float64) for values in (after, source_after)
    )
    return {
        "domain": data.target.name,
        "metric": task.metric,
        "with": by,
        "start": net.name,
        "settings": plan.settings,
        "shots": shots,
        "draws": draws,
        "before": before,
        "after_mean": float(spread.mean()) if after else None,
        "after_std": (float(spread.std()) if draws > 1 else 0.0) if after else None,
        "after": after,
        "source_before": source_before,
        "source_after": math.fsum(source_after) / draws,
        "source_after_std": float(source_spread.std()) if draws > 1 else 0.0,
        "keep_source": keep_source,
        "shares": coefficients,
        "out": None if out is None else str(out),
    }


def _check_new(out: Path) -> None:
    if out.is_dir():
        with locked(out):  # removes what a killed process has left
            pass
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnseenError(f"{out} exists already: choose another --out")


def draw_seed(seed: int, draw: int) -> int:
    return seed * 1000 + draw


def save_adapted(
    run: Run,
    net: Method,
    data: AdaptationData,
    adapted: nn.Module,
    settings: dict[str, Any],
    metrics: dict[str, float],
    out: Path,
) -> None:
    """Save an adapted model as a run, with newly computed source statistics."""
    task, config = data.task, run.config
    net = with_model(net, adapted)
    net.eval()
    calibrate(net, random_part(data.source, MAX_SAMPLES), random_part(data.held_out, MAX_SAMPLES))
    adaptation = {
        "from": config["run"],
        "folder": str(run.folder),
        "domain": data.target.name,
        **settings,
    }
    identity = json.dumps({**adaptation, "folder": ""}, sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    record = {"run": digest, "step": config["loop"]["steps"], "metric": task.metric}
    held_out = data.evaluate(net, data.held_out)
    records = [{**record, "domain": task.source.name, "split": "val", "value": held_out}]
    records += [
        {**record, "domain": name, "split": "test", "value": value}
        for name, value in metrics.items()
    ]
    config = {**config, "run": digest, "adapted": {**adaptation, "commit": commit_here()}}
    with locked(out):
        save_method(net, out, config, {RECORDS: record_lines(records), DONE: b""})
