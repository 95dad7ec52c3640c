"""A finished run, adapted to an unseen domain: what it did for the domain, what it did to the source, and a run to deploy."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
from unseen.files import locked, write_atomically
from unseen.schema import construct_settings
from unseen.training.batches import batches_of, load_split, random_part, take
from unseen.training.checkpoint import save_method
from unseen.training.evaluation import evaluate_metric, with_model
from unseen.training.fit import calibrate
from unseen.training.identity import check_seed, commit_here
from unseen.training.run import Run

HALVINGS = 7  # of the way back to the start: places its length to 1 %


@dataclass(frozen=True)
class Plan:
    """How to adapt: by which method, with what settings and how many labels, and what it may cost the source."""

    by: type[Adaptation]
    settings: dict[str, Any]
    shots: int | None  # labels a class; None where the method takes the whole target without labels
    keep_source: float | None = None  # how much of the metric the held-out source may lose, in 0..1

    @classmethod
    def of(
        cls,
        net: Method,
        by: str,
        shots: int | None,
        settings: Mapping[str, Any],
        keep_source: float | None = None,
    ) -> Plan:
        """A plan, if the settings are the method's and the labels are what it needs."""
        kind = adaptation_named(by)
        construct_settings(kind.settings_of(), settings, f"settings of {by}", by)
        if cls.needs_labels(by) and shots is None:
            raise UnseenError(
                f"{by} learns from a few labels: say how many of each class, as --shots 7"
            )
        if not cls.needs_labels(by) and shots is not None:
            raise UnseenError(f"{by} takes {kind.needs}: leave --shots out")
        if shots is not None:
            check_int("shots", shots, 1)
        if keep_source is not None:
            check_fraction(
                "keep_source (0.02 allows the source to lose 2 points)",
                keep_source,
                zero=True,
                one=True,
            )
        made = kind(
            net.model, **{"embedding": net.embedding, "ignore_label": net.ignore_label, **settings}
        )
        return cls(kind, made.settings(), shots, keep_source)

    @staticmethod
    def needs_labels(by: str) -> bool:
        return adaptation_named(by).needs == FEW_LABELS

    def told(self) -> dict[str, Any]:
        """The plan as a configuration on disk has it."""
        return {
            "with": self.by.name,
            "settings": self.settings,
            "shots": self.shots,
            "keep_source": self.keep_source,
        }


class AdaptationData:
    """The data of a task that one unseen domain's adaptation is about, each split read once."""

    def __init__(self, task: Task, domain: str | None) -> None:
        names = [d.name for d in task.targets]
        if domain is None and len(names) > 1:
            raise UnseenError(
                f"{task.name} has several unseen domains: name one with --domain, of {', '.join(names)}"
            )
        self.task, self.target = task, task.domain(names[0] if domain is None else domain)
        if self.target is task.source:
            raise UnseenError(
                f"{domain} is the source: name an unseen domain, one of {', '.join(names)}"
            )
        self.pool, self.test = load_split(self.target, "train"), load_split(self.target, "test")
        self.source, self.held_out, self.source_test = (
            load_split(task.source, split) for split in ("train", "val", "test")
        )

    @cached_property
    def labels(self) -> torch.Tensor:
        """Of the pool: every draw of shots needs them, and reading them reads the pool."""
        return torch.cat([batch.y for batch in batches_of(self.pool)])

    def shots(self, shots: int, seed: int) -> Labelled:
        """So many labelled samples of each class, at random."""
        chosen = draw_shots(
            self.labels, shots, self.task.classes, torch.Generator().manual_seed(seed)
        )
        return Labelled(*take(self.pool, chosen))

    def worth(self, net: Method, data: Dataset, model: nn.Module | None = None) -> float:
        """Return the task's metric of the method, with the weights of `model` if one is given."""
        net = net if model is None else with_model(net, model)
        return evaluate_metric(self.task.metric, net, data, net.ignore_label).value


@dataclass(frozen=True)
class Drawn:
    """One adapted model, and how much of the way to it was gone."""

    model: nn.Module
    share: float


def one_draw(
    net: Method, ground: AdaptationData, plan: Plan, seed: int, progress: bool = True
) -> Drawn:
    """Adapt once; the seed owns the shots and every other random number."""
    target = ground.pool if plan.shots is None else ground.shots(plan.shots, seed)
    adapted = adapted_model(
        plan.by.name,
        net.model,
        ground.source,
        target,
        seed=seed,
        progress=progress,
        **plan.settings,
    )
    if plan.keep_source is None:
        return Drawn(adapted, 1.0)
    order = torch.randperm(len(ground.held_out), generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    checked = Subset(ground.held_out, order[:MAX_SAMPLES].tolist())

    def worth(model: nn.Module) -> float:
        return ground.worth(net, checked, model)

    return Drawn(*held_back(net.model, adapted, worth, plan.keep_source))


def held_back(
    start: nn.Module, adapted: nn.Module, worth: Callable[[nn.Module], float], bound: float
) -> tuple[nn.Module, float]:
    """The adapted model if it is worth at most `bound` less than the start, else the furthest point towards it that is.

    The way is the straight line between the weights; its length is halved, so the answer keeps the bound wherever the
    worth may jump on the way.
    """
    least = worth(start) - bound - 1e-9  # accuracies are sums of floats
    if worth(adapted) >= least:
        return adapted, 1.0
    kept, low, high = blended(start, adapted, 0.0), 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried = blended(start, adapted, middle)
        if worth(tried) >= least:
            kept, low = tried, middle
        else:
            high = middle
    return kept, low


def blended(start: nn.Module, adapted: nn.Module, share: float) -> nn.Module:
    """A model whose every weight is that share of the way from the start to the adapted one."""
    between = copy.deepcopy(adapted)
    first, last = start.state_dict(), adapted.state_dict()
    between.load_state_dict(
        {
            name: torch.lerp(first[name], t, share) if t.is_floating_point() else first[name]
            for name, t in last.items()
        }
    )
    return between


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
    """Adapt a run several times, with fresh shots; what it did for the domain and to the source. The first goes to `out`."""
    net = run.load(task, device)
    plan = Plan.of(net, by, shots, settings or {}, keep_source)
    draws = (5 if plan.shots else 1) if draws is None else check_int("draws", draws, 1)
    check_seed(seed)
    if (
        out is not None
        and Path(out).exists()
        and (not Path(out).is_dir() or any(Path(out).iterdir()))
    ):
        raise UnseenError(f"{out} is there already: choose another --out")
    ground = AdaptationData(task, domain)
    # Before anything is trained: this is where a domain without labels is found out.
    before, source_before = (
        ground.worth(net, data) for data in (ground.test, ground.source_test)
    )
    after, source_after, shares = [], [], []
    for draw in range(draws):
        drawn = one_draw(net, ground, plan, draw_seed(seed, draw), progress)
        after.append(ground.worth(net, ground.test, drawn.model))
        source_after.append(ground.worth(net, ground.source_test, drawn.model))
        shares.append(drawn.share)
        if draw == 0 and out is not None:
            figures = {ground.target.name: after[0], task.source.name: source_after[0]}
            told = {**plan.told(), "seed": draw_seed(seed, draw), "share": drawn.share}
            save_adapted(run, net, ground, drawn.model, told, figures, Path(out))
    spread, source_spread = (
        torch.tensor(values, dtype=torch.float64) for values in (after, source_after)
    )
    return {
        "domain": ground.target.name,
        "metric": task.metric,
        "with": by,
        "start": net.name,
        "settings": plan.settings,
        "shots": shots,
        "draws": draws,
        "before": before,
        "after_mean": float(spread.mean()),
        "after_std": float(spread.std()) if draws > 1 else 0.0,
        "after": after,
        "source_before": source_before,
        "source_after": math.fsum(source_after) / draws,
        "source_after_std": float(source_spread.std()) if draws > 1 else 0.0,
        "keep_source": keep_source,
        "shares": shares,
        "out": None if out is None else str(out),
    }


def draw_seed(seed: int, draw: int) -> int:
    return seed * 1000 + draw


def save_adapted(
    run: Run,
    net: Method,
    ground: AdaptationData,
    adapted: nn.Module,
    told: dict[str, Any],
    figures: dict[str, float],
    out: Path,
) -> None:
    """A run folder with the adapted weights, its source statistics taken anew: `unseen evaluate` and `score` load it."""
    task, config = ground.task, run.config
    net = copy.deepcopy(net)
    net.model.load_state_dict(adapted.state_dict())
    net.eval()
    calibrate(net, random_part(ground.source, MAX_SAMPLES), random_part(ground.held_out, MAX_SAMPLES))
    told = {"from": config["run"], "folder": str(run.folder), "domain": ground.target.name, **told}
    digest = hashlib.sha256(
        json.dumps({**told, "folder": ""}, sort_keys=True).encode()
    ).hexdigest()[:8]
    at = {"run": digest, "step": config["loop"]["steps"], "metric": task.metric}
    held_out = ground.worth(net, ground.held_out)
    records = [{**at, "domain": task.source.name, "split": "val", "value": held_out}]
    records += [
        {**at, "domain": name, "split": "test", "value": value} for name, value in figures.items()
    ]
    with locked(out):
        making = out.with_name(f".{out.name}.{os.getpid()}")  # renamed when it is whole
        try:
            save_method(
                net, making, {**config, "run": digest, "adapted": {**told, "commit": commit_here()}}
            )
            Run(making).rewrite(records)
            write_atomically(making / "done", b"")
            making.replace(out)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
