"""How well a finished run's accuracy is foretold without labels: on its unseen domains, beside average confidence and ATC."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unseen.api import Domain, Method, Task
from unseen.detection.accuracy import FILE, LEVEL, AccuracyEstimator, look
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.report.tables import markdown, percent
from unseen.training.batches import load_split, random_part
from unseen.training.run import Run

log = logging.getLogger("unseen")

ENOUGH = 2000  # samples of a domain that are looked at
ESTIMATORS = {
    "score": "the curve over the domain score, with its interval",
    "average_confidence": "the mean highest class probability, with the range of its errors under the same shifts",
    "atc": "average thresholded confidence (Garg et al., ICLR 2022)",
}
INTERVALS = ("score", "average_confidence")


def estimator_of(run: Run, task: Task, net: Method) -> AccuracyEstimator:
    """The run's estimator; fitted with its held-out source data, and kept beside its weights, the first time."""
    path = run.folder / FILE
    if path.exists():
        try:
            kept = AccuracyEstimator.load(path)
            if kept.fits(net):
                return kept
            log.warning("%s is for another score: it is fitted again", path)
        except UnseenError as error:
            log.warning("%s", error)
    log.info("fitting the estimator with shifts of %s, held out; once for a run", task.source.name)
    made = AccuracyEstimator.fit(net, random_part(load_split(task.source, "val"), ENOUGH))
    try:
        made.save(path)
    except UnseenError as error:
        log.warning("the estimator is not kept: %s", error)
    return made


def examine(
    run: Run,
    task: Task,
    domains: Sequence[str] | None = None,
    *,
    level: float = LEVEL,
    device: str = "auto",
) -> dict[str, Any]:
    """Foretold and real accuracy of the domains named, or of the source and every unseen one."""
    chosen = (
        [task.source, *task.targets] if domains is None else [task.domain(name) for name in domains]
    )
    net = run.load(task, device)
    if net.reference is None:
        raise UnseenError(f"{run.folder} holds no source statistics: train it again")
    estimator = estimator_of(run, task, net)
    found = {domain.name: _examined(net, estimator, domain, level) for domain in chosen}
    unseen = [
        found[d.name] for d in chosen if d.name != task.source.name and "errors" in found[d.name]
    ]
    return {
        "run": str(run.folder),
        **{k: run.config[k] for k in ("task", "method", "seed")},
        "variant": task.variant,
        "source": task.source.name,
        "score_name": net.score_name,
        "fallback": net.score_name != "sigma",
        "level": level,
        "fitted_on": {"samples": estimator.samples, "shifts": len(estimator.points) - 1},
        "domains": found,
        "mean_absolute_error": {
            name: math.fsum(abs(d["errors"][name]) for d in unseen) / len(unseen)
            for name in ESTIMATORS
            if unseen
        },
    }


def _examined(
    net: Method, estimator: AccuracyEstimator, domain: Domain, level: float
) -> dict[str, Any]:
    batches = random_part(load_split(domain, "test"), ENOUGH)
    x = tuple(torch.cat(parts) for parts in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches])
    labelled = bool((y != net.ignore_label).any())
    seen = look(net, x, y if labelled else None)
    estimate = estimator.judge(net, seen, level)
    foretold = {
        "score": estimate.accuracy,
        "average_confidence": estimate.average_confidence.accuracy,
        "atc": estimate.atc,
    }
    told: dict[str, Any] = {
        "estimates": foretold,
        "intervals": {
            "score": [estimate.low, estimate.high],
            "average_confidence": [
                estimate.average_confidence.low,
                estimate.average_confidence.high,
            ],
        },
        "extrapolates": estimate.extrapolates,
        "score": estimate.score,
        "n": estimate.n,
    }
    if labelled:
        real = float(seen.right.double().mean())
        told |= {
            "accuracy": real,
            "errors": {name: value - real for name, value in foretold.items()},
        }
    return told


# ------------------------------------------------------------------------------------------------------ tables


def write_tables(
    folder: Path, results: Sequence[Mapping[str, Any]], command: str
) -> list[dict[str, Any]]:
    """Write summary.json, table.md and table.csv of runs that differ by their seed alone; the rows of summary.json come back."""
    first = results[0]
    for name in ("task", "variant", "method"):
        if len(found := sorted({str(r[name]) for r in results})) > 1:
            raise UnseenError(
                f"runs of one table must differ by their seed alone; their {name} is {', '.join(found)}"
            )
    if len(seeds := [r["seed"] for r in results]) > len(set(seeds)):
        raise UnseenError(f"two runs have one seed: {', '.join(map(str, seeds))}")
    for result in results:
        if missing := [name for name, d in result["domains"].items() if "errors" not in d]:
            raise UnseenError(
                f"{result['run']}: no labels in {', '.join(missing)}, so no table of errors can be made"
            )
    domains = [name for name in first["domains"] if name != first["source"]]
    errors = {
        (estimator, domain): [abs(r["domains"][domain]["errors"][estimator]) for r in results]
        for estimator in ESTIMATORS
        for domain in domains
    }
    at = {"task": first["task"], "variant": first["variant"]}
    rows = []
    for estimator in ESTIMATORS:
        # Ours goes by the name of the method whose score it reads.
        method = first["method"] if estimator == "score" else estimator
        values = {domain: errors[estimator, domain] for domain in domains}
        values["average"] = [r["mean_absolute_error"][estimator] for r in results]
        for domain, of_seeds in values.items():
            mean, std = mean_and_std(of_seeds)
            rows.append({
                **at, "method": method, "setting": "default", "domain": domain, "metric": "accuracy_error",
                "selection": "last", "mean": mean, "std": std, "seeds": seeds,
            })  # fmt: skip
    header = list(rows[0])
    lines = [
        header,
        *(
            [" ".join(map(str, v)) if isinstance(v, list) else str(v) for v in row.values()]
            for row in rows
        ),
    ]
    write_atomically(folder / "summary.json", (json.dumps(rows, indent=1) + "\n").encode())
    write_atomically(
        folder / "table.csv", "".join(",".join(line) + "\n" for line in lines).encode()
    )
    write_atomically(folder / "table.md", _page(results, command).encode())
    return rows


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    spread = torch.tensor(values, dtype=torch.float64)
    return float(spread.mean()), float(spread.std()) if len(values) > 1 else 0.0


def _page(results: Sequence[Mapping[str, Any]], command: str) -> str:
    first, body = results[0], []
    for domain in first["domains"]:
        per_run = [r["domains"][domain] for r in results]
        foretold = [spread([d["estimates"][name] for d in per_run]) for name in ESTIMATORS]
        body.append(
            [
                domain,
                spread([d["accuracy"] for d in per_run]),
                *foretold,
                *(_held(per_run, name) for name in INTERVALS),
            ]
        )
    errors = [spread([r["mean_absolute_error"][name] for r in results]) for name in ESTIMATORS]
    body.append(["mean absolute error, unseen", "", *errors, *("" for _ in INTERVALS)])
    held = [f"in the {percent(first['level'])} % interval of {name}" for name in INTERVALS]
    header = ["", "real accuracy", *ESTIMATORS, *held]
    return "\n\n".join([
        f"# {first['task']}: accuracy foretold without labels, %",
        f"Made by `{command}`; runs of {first['method']} (score: {first['score_name']}), seeds "
        f"{', '.join(str(r['seed']) for r in results)}; the curves are fitted with synthetic shifts of held-out source data.",
        markdown(header, body),
        "\n".join(f"- {name}: {what}" for name, what in ESTIMATORS.items()),
    ]) + "\n"  # fmt: skip


def _held(per_run: Sequence[Mapping[str, Any]], name: str) -> str:
    """In how many runs an interval holds the real accuracy, and how wide it is."""
    ends = [(d["intervals"][name], d["accuracy"]) for d in per_run]
    inside, width = (
        sum(low <= real <= high for (low, high), real in ends),
        math.fsum(high - low for (low, high), _ in ends),
    )
    return f"{inside} of {len(ends)}, {percent(width / len(ends))} wide"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation in percent."""
    mean, std = mean_and_std(values)
    return f"{percent(mean)} ± {percent(std)}" if len(values) > 1 else percent(mean)
