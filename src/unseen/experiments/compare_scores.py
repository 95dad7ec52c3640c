"""Uncertainty scores compared over the domains of a task: do they follow the error, and what do they cost?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from unseen.api import Batch, Method, Task
from unseen.checks import check_int
from unseen.detection.registry import LogitScore, Score, scores_of
from unseen.detection.source_statistics import bootstrap_interval
from unseen.errors import UnseenError
from unseen.files import locked, read_json, write_atomically
from unseen.functional.metrics import METRICS, confusion_matrix
from unseen.report.figures.scores import draw_scores, figure_name
from unseen.report.statistics import auroc, fpr_at_95
from unseen.report.tables.scores import SCORES_FILE, result_files, summarize
from unseen.training.batches import evaluation_size, load_split, random_part, take
from unseen.training.fit import REMEMBERED
from unseen.training.identity import check_seed
from unseen.training.progress import TrainingProgress
from unseen.training.run import Run

OURS = "uncertainty_guided"
ROUNDS, FEWEST_ROUNDS, PATIENCE = (
    9,
    3,
    20.0,
)  # timings of each score; after that many seconds the fewest will do


@dataclass
class Candidate:
    """A finished run with the scores that are read off its model, and what they gave."""

    run: Run
    net: Method
    scores: list[Score]
    values: dict[str, float] = field(default_factory=dict)  # the task's metric, by domain
    found: dict[str, dict[str, dict[str, float]]] = field(
        default_factory=dict
    )  # by score and domain
    costs: dict[str, dict[str, float]] = field(default_factory=dict)  # by score
    source: dict[str, Tensor] = field(
        default_factory=dict
    )  # per-sample scores of the source, by score

    def facts(self) -> dict[str, Any]:
        config = self.run.config
        return {
            "run": config["run"],
            "folder": str(self.run.folder),
            **{k: config[k] for k in ("method", "seed")},
            "setting": "default",
            "values": self.values,
            "scores": {
                s.name: {**self.costs[s.name], "domains": self.found[s.name]} for s in self.scores
            },
        }


def compare(
    runs: Sequence[Run], task: Task, out: Path, *, samples: int = 1000, seed: int = 0, device: str = "auto", progress: bool = True
) -> dict[str, Any]:  # fmt: skip
    """Examine every score of the runs on the held-out source and on every unseen domain; tables and a figure go to `out`.

    A folder may collect several tasks: each replaces what it had there before and leaves the others.
    """
    check_int("samples", samples, 2)
    check_seed(seed)
    if out.exists() and not out.is_dir():
        raise UnseenError(f"{out} is a file; --out names a folder")
    candidates = [
        Candidate(run, net, scores_of(net)) for run, net in _loaded_once(runs, task, device)
    ]
    ours = [c for c in candidates if c.net.name == OURS]
    if not ours:
        raise UnseenError(
            f"name at least one run of {OURS}: its score is what the others are compared with"
        )
    if other := next((c for c in ours if c.net.score_at != ours[0].net.score_at), None):
        places = " and ".join(f"{c.run.folder} at the {c.net.score_at}" for c in (ours[0], other))
        raise UnseenError(
            f"the score is read of {places}: make them alike, `unseen calibrate RUN --at embedding`"
        )
    _earlier(out)  # a spoilt file is found before the work, not after it
    learned_from = random_part(load_split(task.source, "train"), REMEMBERED)
    for candidate in candidates:
        for score in candidate.scores:
            score.fit(learned_from)
    domains = (task.source, *task.targets)
    with TrainingProgress(f"{task.name} uncertainty", len(domains), quiet=not progress) as shown:
        for number, domain in enumerate(
            domains, start=1
        ):  # one at a time: all of them may not fit into memory
            data = load_split(domain, "test")
            part = random_samples(data, samples, seed)
            for candidate in candidates:
                _examine(candidate, task, domain.name, part)
                if domain is task.source:
                    _time(candidate, part[0])
            shown.show(number)
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
    told = {k: facts[k] for k in ("task", "variant", "source", "domains", "samples", "seed")}
    return {**told, "out": str(out), "files": files, "summary": summarize(facts)}


def _write(out: Path, facts: dict[str, Any]) -> list[str]:
    """Write the tables of this task and of those that were compared into the folder before; the names of the files."""
    with locked(out):
        others = [
            f
            for f in _earlier(out)
            if (f["task"], f["variant"]) != (facts["task"], facts["variant"])
        ]
        files = {**result_files([*others, facts]), figure_name(facts): draw_scores(facts)}
        for name, content in files.items():
            write_atomically(out / name, content)
    return list(files)


def _earlier(out: Path) -> list[dict[str, Any]]:
    """What the folder knows of other tasks, if tables can be made of it."""
    path = out / SCORES_FILE
    if not path.exists():
        return []
    try:
        tasks: Any = read_json(path)["tasks"]
        result_files(tasks)
        return list(tasks)
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        ZeroDivisionError,
        IndexError,
    ) as error:
        raise UnseenError(
            f"{path} is not a comparison of scores: {error!r}; choose another --out"
        ) from error


def _loaded_once(runs: Sequence[Run], task: Task, device: str) -> list[tuple[Run, Method]]:
    """The runs with their trained methods; a score has one run for each seed."""
    by_key: dict[tuple[str, int], Run] = {}
    for run in runs:
        key = (run.config["method"], run.config["seed"])
        if key in by_key:
            both = f"{by_key[key].folder} and {run.folder}"
            raise UnseenError(
                f"{both} are both runs of {key[0]} with seed {key[1]}: name one run for each method and seed"
            )
        by_key[key] = run
    return [(run, run.load(task, device)) for run in runs]


def random_samples(data: Dataset, samples: int, seed: int) -> list[Batch]:
    """So many samples, or all if there are fewer, in batches: the same for every run."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:samples]  # type: ignore[arg-type]
    return [take(data, part) for part in order.sort().values.split(evaluation_size(data))]


def _examine(candidate: Candidate, task: Task, domain: str, part: Sequence[Batch]) -> None:
    """The metric and every score of one domain, into the candidate."""
    own, *others = candidate.scores
    confusions: list[Tensor] = []
    rows: dict[str, list[Tensor]] = {score.name: [] for score in candidate.scores}
    for batch in part:
        logits, features = own.look(batch.x)
        confusions.append(confusion_matrix(logits, batch.y, candidate.net.ignore_label))
        rows[own.name].append(features.cpu())
        for score in others:  # those of the logits need no pass of their own
            looked = (
                score.from_logits(logits)
                if isinstance(score, LogitScore)
                else score.look(batch.x).features
            )
            rows[score.name].append(looked.cpu())
    counts = torch.stack(confusions).sum(0)
    if not counts.any():
        raise UnseenError(
            f"{domain} has no labels that count among the samples drawn: take more, --samples"
        )
    candidate.values[domain] = METRICS[task.metric](counts)
    for score in candidate.scores:
        features = torch.cat(rows[score.name])
        if not features.isfinite().all():
            raise UnseenError(
                f"{candidate.run.folder}: {score.name} of {domain} is not finite: look for NaN in its data or weights"
            )
        low, high = bootstrap_interval(features, score.score)
        found = {"score": score.domain(features), "low": low, "high": high, "n": len(features)}
        per_sample = score.score(features)
        source = candidate.source.setdefault(score.name, per_sample)  # the source comes first
        if domain != task.source.name:
            found["auroc"] = auroc(source.numpy(), per_sample.numpy())
            found["fpr95"] = fpr_at_95(source.numpy(), per_sample.numpy())
        candidate.found.setdefault(score.name, {})[domain] = found


def _time(candidate: Candidate, batch: Batch) -> None:
    """What prediction and score cost, against one plain prediction of the same model and batch, into the candidate."""
    net = candidate.net
    acts: dict[str, Callable[[], Any]] = {"": lambda: Method.predict(net, batch.x)}
    acts |= {
        score.name: lambda score=score: score.score(score.look(batch.x).features)  # type: ignore[misc]
        for score in candidate.scores
    }
    seconds = alternating_seconds(acts, net.device)
    for name in (score.name for score in candidate.scores):
        # Round by round, so that a busy moment of the machine hits both.
        ratios = [ours / plain for ours, plain in zip(seconds[name], seconds[""], strict=True)]
        candidate.costs[name] = {
            "ms_per_1000": 1e6 * statistics.median(seconds[name]) / len(batch.y),
            "plain_ms_per_1000": 1e6 * statistics.median(seconds[""]) / len(batch.y),
            "cost_ratio": statistics.median(ratios),
            "rounds": len(ratios),
        }


def alternating_seconds(
    acts: dict[str, Callable[[], Any]], device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each act, round after round, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    started = time.perf_counter()
    for number in range(ROUNDS + 1):
        if number > FEWEST_ROUNDS and time.perf_counter() - started > PATIENCE:
            break
        for name, act in acts.items():
            begun = time.perf_counter()
            act()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:
                times[name].append(time.perf_counter() - begun)
    return times
