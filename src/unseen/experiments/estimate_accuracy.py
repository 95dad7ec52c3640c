"""Label-free accuracy estimates of finished runs, compared with their true accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from unseen.api import Domain, Task
from unseen.checks import check_int
from unseen.detection.accuracy import LEVEL, AccuracyEstimator
from unseen.detection.combined import DIRECT
from unseen.detection.one_pass import Observation
from unseen.errors import UnseenError
from unseen.experiments.run_estimator import estimator_of
from unseen.training.batches import load_split, random_part
from unseen.training.run import Run

MAX_SAMPLES = 2000  # of a domain
COMBINED = "combined"  # the default estimator
SMALL_SAMPLE = 100
SMALL_DRAWS = 5
BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)  # parts of the target in blends with the source


def estimate_run(
    run: Run,
    task: Task,
    domains: Sequence[str] | None = None,
    *,
    level: float = LEVEL,
    samples: int = MAX_SAMPLES,
    device: str = "auto",
) -> dict[str, Any]:
    """Estimate the accuracy on the named domains, or on the source and every target.

    With labels, and all domains, samples of 100 and blends of source and targets are estimated too.

    Args:
        samples: random samples of each domain, at most.
    """
    check_int("samples", samples, 1)
    chosen = [task.source, *task.targets]
    if domains is not None:
        chosen = [task.domain(name) for name in domains]
    net = run.load(task, device)
    if net.detector.statistics is None:
        raise UnseenError(f"{run.folder} holds no source statistics: train it again")
    estimator = estimator_of(run, task, net)
    seen = {d.name: _observe(estimator, d, net.ignore_label, samples) for d in chosen}
    results = {name: _estimate(estimator, o, level) for name, o in seen.items()}
    unseen = [name for name, r in results.items() if name != task.source.name and "errors" in r]
    result = {
        "run": str(run.folder),
        **{k: run.config[k] for k in ("task", "method", "seed")},
        "variant": task.variant,
        "source": task.source.name,
        "score_name": net.detector.name,
        "fallback": not net.detector.reads_learned_noise,
        "level": level,
        "fitted_on": {"samples": estimator.samples, "shifts": estimator.shifts},
        "weights": _weights(estimator),
        "domains": results,
        "mean_absolute_error": _mean_errors([results[name] for name in unseen]),
    }
    if domains is None and unseen:
        result["protocols"] = {
            name: _summarize([_estimate(estimator, o, level, truth) for o, truth in cases])
            for name, cases in _protocols(estimator, seen, task.source.name, unseen)
        }
        result["protocols"]["default"] = _summarize([results[name] for name in unseen])
    return result


def _observe(
    estimator: AccuracyEstimator, domain: Domain, ignore: int, samples: int
) -> Observation:
    parts = []
    for batch in random_part(load_split(domain, "test"), samples):
        labelled = bool((batch.y != ignore).any())
        parts.append(estimator.one_pass.observe(batch.x, batch.y if labelled else None, ignore))
    if any(part.counted is None for part in parts):
        for part in parts:
            part.counted = part.correct = None
    return estimator.one_pass.join(parts)


def _estimate(
    estimator: AccuracyEstimator, seen: Observation, level: float, truth: float | None = None
) -> dict[str, Any]:
    estimate = estimator.estimate_from(seen, level)
    estimates = {COMBINED: estimate.accuracy, **estimate.signals}
    result: dict[str, Any] = {
        "estimates": estimates,
        "interval": [estimate.low, estimate.high],
        "extrapolates": estimate.extrapolates,
        "n": estimate.n,
    }
    if truth is None and seen.counted is not None:
        truth = seen.accuracy
    if truth is not None:
        result["accuracy"] = truth
        result["errors"] = {name: value - truth for name, value in estimates.items()}
        result["covered"] = estimate.low <= truth <= estimate.high
    return result


def _weights(estimator: AccuracyEstimator) -> dict[str, float]:
    combined = estimator.combined
    names = [*(f"curve of {n}" for n in combined.names), *DIRECT]
    return {n: float(w) for n, w in zip(names, combined.weights, strict=True) if w > 0.005}


def _mean_errors(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    if not results:
        return {}
    return {
        name: math.fsum(abs(r["errors"][name]) for r in results) / len(results)
        for name in results[0]["errors"]
    }


def _summarize(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    widths = [high - low for low, high in (r["interval"] for r in results)]
    return {
        "accuracy_error": _mean_errors(results),
        "coverage": sum(r["covered"] for r in results) / len(results),
        "width": math.fsum(widths) / len(widths),
        "estimates": len(results),
    }


def _protocols(
    estimator: AccuracyEstimator, seen: dict[str, Observation], source: str, unseen: list[str]
) -> Iterator[tuple[str, list[tuple[Observation, float]]]]:
    """Yield observations with their true accuracy: small samples, then blends with the source."""
    g = torch.Generator().manual_seed(0)
    one_pass, clean = estimator.one_pass, seen[source]

    def draw(o: Observation, n: int) -> Observation:
        return one_pass.regrouped(o, torch.randperm(o.n, generator=g)[:n])

    yield (
        f"samples_of_{SMALL_SAMPLE}",
        [
            (draw(seen[name], SMALL_SAMPLE), seen[name].accuracy)
            for name in unseen
            for _ in range(SMALL_DRAWS)
        ],
    )
    for share in BLENDS:
        cases = []
        for name in unseen:
            n = min(seen[name].n, clean.n)
            parts = [draw(clean, round((1 - share) * n)), draw(seen[name], round(share * n))]
            both = Observation.concatenate([p for p in parts if p.n])
            cases.append((draw(both, both.n), both.accuracy))
        yield f"blend_{share:.2f}", cases
