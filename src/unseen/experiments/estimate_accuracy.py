"""Label-free accuracy estimates of finished runs, compared with their true accuracy."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unseen.api import Domain, Method, Task
from unseen.detection.accuracy import FILE, LEVEL, AccuracyEstimator
from unseen.detection.observation import observe
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.report.tables import markdown, percent
from unseen.training.batches import load_split, random_part
from unseen.training.run import Run

log = logging.getLogger("unseen")

MAX_SAMPLES = 2000  # of a domain
ESTIMATORS = {
    "score": "decreasing curve over the domain score, with its interval",
    "average_confidence": "mean highest class probability, with its errors under the same shifts",
    "atc": "average thresholded confidence (Garg et al., ICLR 2022)",
}
INTERVALS = ("score", "average_confidence")


def estimator_of(run: Run, task: Task, net: Method) -> AccuracyEstimator:
    """Return the run's estimator; fit it with held-out source data and save it the first time."""
    path = run.folder / FILE
    if path.exists():
        try:
            saved = AccuracyEstimator.load(path)
            if saved.matches(net):
                return saved
            log.warning("%s belongs to another score: it is fitted again", path)
        except UnseenError as error:
            log.warning("%s", error)
    log.info("fitting the estimator with shifts of held-out %s, once for a run", task.source.name)
    held_out = random_part(load_split(task.source, "val"), MAX_SAMPLES)
    estimator = AccuracyEstimator.fit(net, held_out)
    try:
        estimator.save(path)
    except UnseenError as error:
        log.warning("the estimator is not saved: %s", error)
    return estimator


def estimate_run(
    run: Run,
    task: Task,
    domains: Sequence[str] | None = None,
    *,
    level: float = LEVEL,
    device: str = "auto",
) -> dict[str, Any]:
    """Estimate the accuracy on the named domains, or on the source and every target."""
    chosen = [task.source, *task.targets]
    if domains is not None:
        chosen = [task.domain(name) for name in domains]
    net = run.load(task, device)
    if net.detector.statistics is None:
        raise UnseenError(f"{run.folder} holds no source statistics: train it again")
    estimator = estimator_of(run, task, net)
    results = {d.name: _estimate_domain(net, estimator, d, level) for d in chosen}
    unseen = [r for name, r in results.items() if name != task.source.name and "errors" in r]
    return {
        "run": str(run.folder),
        **{k: run.config[k] for k in ("task", "method", "seed")},
        "variant": task.variant,
        "source": task.source.name,
        "score_name": net.detector.name,
        "fallback": not net.detector.reads_learned_noise,
        "level": level,
        "fitted_on": {"samples": estimator.samples, "shifts": len(estimator.points) - 1},
        "domains": results,
        "mean_absolute_error": {
            name: math.fsum(abs(d["errors"][name]) for d in unseen) / len(unseen)
            for name in ESTIMATORS
            if unseen
        },
    }


def _estimate_domain(
    net: Method, estimator: AccuracyEstimator, domain: Domain, level: float
) -> dict[str, Any]:
    batches = random_part(load_split(domain, "test"), MAX_SAMPLES)
    x = tuple(torch.cat(parts) for parts in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches])
    labelled = bool((y != net.ignore_label).any())
    observation = observe(net.detector, x, y if labelled else None, net.ignore_label)
    estimate = estimator.estimate_from(net, observation, level)
    confidence = estimate.average_confidence
    estimates = {
        "score": estimate.accuracy,
        "average_confidence": confidence.accuracy,
        "atc": estimate.atc,
    }
    result: dict[str, Any] = {
        "estimates": estimates,
        "intervals": {
            "score": [estimate.low, estimate.high],
            "average_confidence": [confidence.low, confidence.high],
        },
        "extrapolates": estimate.extrapolates,
        "score": estimate.score,
        "n": estimate.n,
    }
    if labelled:
        accuracy = float(observation.correct.double().mean())
        result["accuracy"] = accuracy
        result["errors"] = {name: value - accuracy for name, value in estimates.items()}
    return result


# ---- tables


def write_tables(
    folder: Path, results: Sequence[Mapping[str, Any]], command: str
) -> list[dict[str, Any]]:
    """Write summary.json and table.md of runs that differ in their seed only.

    Return the rows of summary.json.
    """
    _check_comparable(results)
    rows = _summary_rows(results)
    write_atomically(folder / "summary.json", (json.dumps(rows, indent=1) + "\n").encode())
    write_atomically(folder / "table.md", _page(results, command).encode())
    return rows


def _check_comparable(results: Sequence[Mapping[str, Any]]) -> None:
    for name in ("task", "variant", "method"):
        if len(values := sorted({str(r[name]) for r in results})) > 1:
            raise UnseenError(
                f"runs of one table must differ in their seed only; their {name} is "
                f"{', '.join(values)}"
            )
    if len(seeds := [r["seed"] for r in results]) > len(set(seeds)):
        raise UnseenError(f"two runs have one seed: {', '.join(map(str, seeds))}")
    for result in results:
        if missing := [name for name, d in result["domains"].items() if "errors" not in d]:
            raise UnseenError(
                f"{result['run']}: no labels in {', '.join(missing)}, so there are no errors to "
                "tabulate"
            )


def _summary_rows(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    first, rows = results[0], []
    domains = [name for name in first["domains"] if name != first["source"]]
    for estimator in ESTIMATORS:
        # Our estimator is named after the method whose score it reads.
        method = first["method"] if estimator == "score" else estimator
        values = {
            domain: [abs(r["domains"][domain]["errors"][estimator]) for r in results]
            for domain in domains
        }
        values["average"] = [r["mean_absolute_error"][estimator] for r in results]
        for domain, by_seed in values.items():
            mean, std = mean_and_std(by_seed)
            rows.append(
                {
                    "task": first["task"],
                    "variant": first["variant"],
                    "method": method,
                    "setting": "default",
                    "domain": domain,
                    "metric": "accuracy_error",
                    "selection": "last",
                    "mean": mean,
                    "std": std,
                    "seeds": [r["seed"] for r in results],
                }
            )
    return rows


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation; the deviation of one value is 0."""
    tensor = torch.tensor(values, dtype=torch.float64)
    return float(tensor.mean()), float(tensor.std()) if len(values) > 1 else 0.0


def _page(results: Sequence[Mapping[str, Any]], command: str) -> str:
    first, body = results[0], []
    for domain in first["domains"]:
        by_run = [r["domains"][domain] for r in results]
        estimates = [show_spread([d["estimates"][name] for d in by_run]) for name in ESTIMATORS]
        accuracy = show_spread([d["accuracy"] for d in by_run])
        coverage = [_coverage(by_run, name) for name in INTERVALS]
        body.append([domain, accuracy, *estimates, *coverage])
    errors = [show_spread([r["mean_absolute_error"][name] for r in results]) for name in ESTIMATORS]
    body.append(["mean absolute error, unseen", "", *errors, *("" for _ in INTERVALS)])
    covered = [f"in the {percent(first['level'])} % interval of {name}" for name in INTERVALS]
    header = ["", "true accuracy", *ESTIMATORS, *covered]
    seeds = ", ".join(str(r["seed"]) for r in results)
    blocks = [
        f"# {first['task']}: label-free accuracy estimates, %",
        f"Made by `{command}`; runs of {first['method']} (score: {first['score_name']}), seeds "
        f"{seeds}; the curves are fitted with synthetic shifts of held-out source data.",
        markdown(header, body),
        "\n".join(f"- {name}: {text}" for name, text in ESTIMATORS.items()),
    ]
    return "\n\n".join(blocks) + "\n"


def _coverage(by_run: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return in how many runs an interval holds the true accuracy, and its mean width."""
    ends = [(d["intervals"][name], d["accuracy"]) for d in by_run]
    inside = sum(low <= accuracy <= high for (low, high), accuracy in ends)
    width = math.fsum(high - low for (low, high), _ in ends) / len(ends)
    return f"{inside} of {len(ends)}, {percent(width)} wide"


def show_spread(values: Sequence[float]) -> str:
    """Format mean and standard deviation in percent."""
    mean, std = mean_and_std(values)
    return f"{percent(mean)} ± {percent(std)}" if len(values) > 1 else percent(mean)
