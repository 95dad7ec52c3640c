"""Comparison of uncertainty scores over the domains of a task: rank correlation, AUROC, cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from unseen.api import Batch, Method, Task
from unseen.checks import check_int
from unseen.detection import Energy, Entropy, Mahalanobis, MaxSoftmax, TotalVariance
from unseen.detection.accuracy import check_classifies
from unseen.detection.detector import Detector
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.logits import LogitDetector
from unseen.detection.sampling import MAX_SAMPLES
from unseen.errors import UnseenError
from unseen.files import locked, read_json, replace_files
from unseen.functional.bootstrap import bootstrap_interval
from unseen.functional.metrics import METRICS, confusion_matrix
from unseen.report.figures.scores import draw_scores, figure_name
from unseen.report.statistics import auroc, fpr_at_95
from unseen.report.tables.scores import SCORES_FILE, result_files, summarize
from unseen.schema import validate
from unseen.schema.results import ScoresFile
from unseen.training.batches import evaluation_size, load_split, random_part, take
from unseen.training.identity import check_seed
from unseen.training.progress import TrainingProgress
from unseen.training.run import Run

OURS = "uncertainty_guided"
# Timings of each score; after PATIENCE seconds the fewest are enough.
ROUNDS, FEWEST_ROUNDS, PATIENCE = 9, 3, 20.0


def detectors_of(net: Method) -> dict[str, Detector]:
    """Return the detectors to compare on a model, by the name of their row; its own comes first.

    The scores of one table share one model where they can.
    """
    check_classifies(net)
    own = net.detector
    if net.name == OURS:
        if not own.reads_learned_noise:
            raise UnseenError(
                f"this {OURS} model has no learned noise scale, only {own.name}: see its settings"
            )
        layer = net.embedding if isinstance(own, EmbeddingShift) else net.sites[0]
        rows = {OURS: own, "msp": MaxSoftmax(net), "entropy": Entropy(net), "energy": Energy(net)}
        return {**rows, "mahalanobis": Mahalanobis(net, layer)}
    if net.name == "bnn":
        return {"bnn": own, "bnn_total": TotalVariance(net)}
    if net.name == "mc_dropout":
        return {"mc_dropout": own}
    raise UnseenError(
        f"scores are compared over runs of {OURS}, bnn and mc_dropout; this one is of {net.name}"
    )


@dataclass
class Candidate:
    """A finished run, the detectors to compare on its model, and their results."""

    run: Run
    net: Method
    detectors: dict[str, Detector]
    values: dict[str, float] = field(default_factory=dict)  # the task's metric, by domain
    # By score and domain.
    results: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    costs: dict[str, dict[str, float]] = field(default_factory=dict)  # by score
    source: dict[str, Tensor] = field(default_factory=dict)  # per-sample scores, by score

    def facts(self) -> dict[str, Any]:
        """Return the results as they are written to scores.json."""
        config = self.run.config
        return {
            "run": config["run"],
            "folder": str(self.run.folder),
            **{k: config[k] for k in ("method", "seed")},
            "setting": "default",
            "values": self.values,
            "scores": {
                name: {**self.costs[name], "domains": self.results[name]} for name in self.detectors
            },
        }


def compare(
    runs: Sequence[Run],
    task: Task,
    out: Path,
    *,
    samples: int = 1000,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
) -> dict[str, Any]:
    """Compute every score of the runs on the source and every target; write tables and a figure.

    `out` may collect several tasks: each replaces its own earlier results and leaves the others.
    """
    check_int("samples", samples, 2)
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise UnseenError(f"{out} is a file; --out names a folder")
    candidates = [
        Candidate(run, net, detectors_of(net)) for run, net in _load_once(runs, task, device)
    ]
    _check_ours([c for c in candidates if c.net.name == OURS])
    _read_earlier(out)  # a damaged file is reported before the work, not after it
    source = random_part(load_split(task.source, "train"), MAX_SAMPLES)
    for candidate in candidates:
        for detector in candidate.detectors.values():
            if detector is not candidate.net.detector:  # the own one is calibrated
                detector.fit(source)
    domains = (task.source, *task.targets)
    with TrainingProgress(f"{task.name} scores", len(domains), quiet=not progress) as bar:
        for number, domain in enumerate(domains, start=1):  # one at a time: memory
            batches = random_samples(load_split(domain, "test"), samples, seed)
            for candidate in candidates:
                _score_domain(candidate, task, domain.name, batches)
                if domain is task.source:
                    _measure_cost(candidate, batches[0])
            bar.show(number)
    facts = {
        "task": task.name,
        "variant": task.variant,
        "metric": task.metric,
        "source": task.source.name,
        "domains": [d.name for d in task.targets],
        "samples": samples,
        "seed": seed,
        "device": str(candidates[0].net.device),
        "threads": torch.get_num_threads(),
        "runs": [candidate.facts() for candidate in candidates],
    }
    files = _write(out, facts)
    header = {k: facts[k] for k in ("task", "variant", "source", "domains", "samples", "seed")}
    return {**header, "out": str(out), "files": files, "summary": summarize(facts)}


def _check_ours(ours: Sequence[Candidate]) -> None:
    if not ours:
        raise UnseenError(
            f"name at least one run of {OURS}: its score is what the others are compared with"
        )
    first = ours[0]
    for other in ours[1:]:
        if other.net.detector.name != first.net.detector.name:
            both = " and ".join(f"{c.run.folder} {c.net.detector.name}" for c in (first, other))
            raise UnseenError(
                f"the runs have different scores: {both}; use one, "
                "`unseen calibrate RUN --at embedding`"
            )


def _write(out: Path, facts: dict[str, Any]) -> list[str]:
    """Write the tables of this task and of the earlier ones; return the names of the files."""
    with locked(out):
        key = (facts["task"], facts["variant"])
        others = [f for f in _read_earlier(out) if (f["task"], f["variant"]) != key]
        files = {**result_files([*others, facts]), figure_name(facts): draw_scores(facts)}
        replace_files(out, files)
    return list(files)


def _read_earlier(out: Path) -> list[dict[str, Any]]:
    """Return the results of earlier comparisons in the folder."""
    path = out / SCORES_FILE
    if not path.exists():
        return []
    content = read_json(path)
    validate(ScoresFile, content, f"{path} is not a comparison of scores, choose another --out")
    return list(content["tasks"])


def _load_once(runs: Sequence[Run], task: Task, device: str) -> list[tuple[Run, Method]]:
    """Load the methods of the runs; a method has one run for each seed."""
    by_key: dict[tuple[str, int], Run] = {}
    for run in runs:
        key = (run.config["method"], run.config["seed"])
        if key in by_key:
            raise UnseenError(
                f"{by_key[key].folder} and {run.folder} are both runs of {key[0]} with seed "
                f"{key[1]}: name one run for each method and seed"
            )
        by_key[key] = run
    return [(run, run.load(task, device)) for run in runs]


def random_samples(data: Dataset, samples: int, seed: int) -> list[Batch]:
    """Return at most `samples` random samples in batches, the same for every run."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(len(data), generator=generator)[:samples]  # type: ignore[arg-type]
    return [take(data, part) for part in index.sort().values.split(evaluation_size(data))]


def _score_domain(candidate: Candidate, task: Task, domain: str, batches: Sequence[Batch]) -> None:
    """Add the metric and every score of one domain to the candidate."""
    detectors, own = candidate.detectors, candidate.net.detector
    confusion: list[Tensor] = []
    rows: dict[str, list[Tensor]] = {name: [] for name in detectors}
    for batch in batches:
        logits, features = own.look(batch.x)  # the logits are those of net.predict
        confusion.append(confusion_matrix(logits, batch.y, candidate.net.ignore_label))
        for name, detector in detectors.items():
            if detector is own:
                row = features
            elif isinstance(detector, LogitDetector):  # needs no pass of its own
                row = detector.features(logits)
            else:
                row = detector.look(batch.x).features
            rows[name].append(row.cpu())
    counts = torch.stack(confusion).sum(0)
    if not counts.any():
        raise UnseenError(
            f"{domain} has no labels that count among the samples drawn: take more, --samples"
        )
    candidate.values[domain] = METRICS[task.metric](counts)
    for name, detector in detectors.items():
        features = torch.cat(rows[name])
        if not features.isfinite().all():
            raise UnseenError(
                f"{candidate.run.folder}: {name} of {domain} is not finite: look for NaN in its "
                "data or weights"
            )
        low, high = bootstrap_interval(features, detector.reduce)
        score = detector.domain_score_of(features)
        result = {"score": score, "low": low, "high": high, "n": len(features)}
        per_sample = detector.reduce(features)
        source = candidate.source.setdefault(name, per_sample)  # the source comes first
        if domain != task.source.name:
            result["auroc"] = auroc(source.numpy(), per_sample.numpy())
            result["fpr95"] = fpr_at_95(source.numpy(), per_sample.numpy())
        candidate.results.setdefault(name, {})[domain] = result


def _measure_cost(candidate: Candidate, batch: Batch) -> None:
    """Add the time of prediction and score, relative to one forward pass, to the candidate."""
    net = candidate.net
    calls: dict[str, Callable[[], Any]] = {"": partial(Method.predict, net, batch.x)}
    for name, detector in candidate.detectors.items():
        calls[name] = partial(detector.score, batch.x)
    seconds = alternating_seconds(calls, net.device)
    plain = seconds[""]
    for name in candidate.detectors:
        # Round by round, so that a busy moment of the machine affects both.
        ratios = [ours / one for ours, one in zip(seconds[name], plain, strict=True)]
        candidate.costs[name] = {
            "ms_per_1000": 1e6 * statistics.median(seconds[name]) / len(batch.y),
            "plain_ms_per_1000": 1e6 * statistics.median(plain) / len(batch.y),
            "cost_ratio": statistics.median(ratios),
            "rounds": len(ratios),
        }


def alternating_seconds(
    calls: dict[str, Callable[[], Any]], device: torch.device
) -> dict[str, list[float]]:
    """Time each call in turn, round after round; the first round is a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    started = time.perf_counter()
    for number in range(ROUNDS + 1):
        if number > FEWEST_ROUNDS and time.perf_counter() - started > PATIENCE:
            break
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:
                times[name].append(time.perf_counter() - begin)
    return times
