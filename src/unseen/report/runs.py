"""Read finished runs and results from disk: configuration, records and saved arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load

from unseen.errors import UnseenError
from unseen.files import complete_writes
from unseen.reading import read_json_value, read_safetensors
from unseen.report.settings import read_config
from unseen.report.tables.scores import SCORES_FILE
from unseen.schema import validate
from unseen.schema.results import RunsPage, ScoresFile, SummaryFile
from unseen.schema.run_files import RunFields, read_records

DOMAIN_SCORE, SCORE_THRESHOLD = "domain_score", "score_threshold"  # records of `unseen evaluate`
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder: its configuration, its records and the arrays saved for figures."""

    folder: Path
    config: dict[str, Any]
    records: list[dict[str, Any]] = field(repr=False)

    @property
    def task(self) -> tuple[str, str]:
        return self.config["task"], self.config.get("variant", "default")

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def steps(self) -> int:
        return int(self.config["loop"]["steps"])

    @cached_property
    def metric(self) -> str:
        """The task's metric: the only one recorded on held-out source data."""
        return next((r["metric"] for r in self.records if r["split"] == "val"), "accuracy")

    @cached_property
    def source(self) -> str:
        """The source domain: the only one with records of training."""
        return next((r["domain"] for r in self.records if r["split"] in ("train", "val")), "source")

    @cached_property
    def evaluations(self) -> dict[int, dict[str, float]]:
        """The metric on the test split of every domain, by step, in the order of the records."""
        by_step: dict[int, dict[str, float]] = {}
        for r in self.records:
            if r["split"] == "test" and r["metric"] == self.metric:
                by_step.setdefault(r["step"], {})[r["domain"]] = r["value"]
        return dict(sorted(by_step.items()))

    @cached_property
    def values(self) -> dict[str, float]:
        """The metric on every domain at the last step.

        A run that was not evaluated has its held-out source data only, if that was recorded.
        """
        if self.steps in self.evaluations:
            return self.evaluations[self.steps]
        for metric, split in ((self.metric, "val"), (f"source_{self.metric}", "train")):
            _, held_out = self.curve(metric, split)
            if held_out:
                return {self.source: held_out[-1]}
        return {}

    @property
    def domains(self) -> list[str]:
        """The unseen domains that the run was evaluated on."""
        return [d for d in self.values if d != self.source]

    @property
    def seconds(self) -> float:
        """Training time; nan if it was not recorded."""
        pace = [r["value"] for r in self.records if r["metric"] == "seconds_per_step"]
        return pace[-1] * self.steps if pace else math.nan

    def curve(self, metric: str, split: str = "train") -> tuple[list[int], list[float]]:
        """Return steps and values of a metric recorded on the source."""
        by_step = {
            r["step"]: r["value"]
            for r in self.records
            if r["metric"] == metric and r["split"] == split
        }
        return sorted(by_step), [by_step[step] for step in sorted(by_step)]

    def logged_metrics(self) -> list[str]:
        """Return the names of what was recorded during training."""
        return list(dict.fromkeys(r["metric"] for r in self.records if r["split"] == "train"))

    def scores(self, metric: str) -> dict[str, float]:
        """Return the domain scores, or their thresholds, that `unseen evaluate` recorded."""
        return {
            r["domain"]: r["value"]
            for r in self.records
            if r["metric"] == metric and r["split"] == "score" and r["step"] == self.steps
        }

    @cached_property
    def verdicts(self) -> dict[str, dict[str, float]]:
        """The values that `unseen score` recorded of each domain, the source first."""
        by_domain: dict[str, dict[str, float]] = {}
        for r in self.records:
            if r["split"] == "verdict" and r["step"] == self.steps:
                by_domain.setdefault(r["domain"], {})[r["metric"]] = r["value"]
        order = [d for d in (self.source, *self.domains) if d in by_domain]
        return {d: by_domain[d] for d in dict.fromkeys([*order, *by_domain])}

    @cached_property
    def snapshots(self) -> dict[int, Path]:
        """The files of arrays saved during training, by step."""
        files = self.folder.glob("figures/step_*.safetensors")
        steps = {path.stem.removeprefix("step_"): path for path in files}
        return dict(sorted((int(s), path) for s, path in steps.items() if s.isdecimal()))

    def snapshot(self, step: int) -> Arrays:
        return read_arrays(self.snapshots[step])

    @cached_property
    def inputs(self) -> NDArray[np.uint8] | None:
        """The samples of the snapshots as images (N, H, W, 3); None if they are not images."""
        x = read_arrays(self.folder / "figures" / "inputs.safetensors").get("x")
        return None if x is None else to_rgb(x)

    @cached_property
    def evaluation_arrays(self) -> Arrays:
        """Confusion matrices and examples of every domain, under names such as confusion/svhn."""
        return read_arrays(self.folder / "figures" / "exam.safetensors")

    @cached_property
    def reliability_arrays(self) -> Arrays:
        """Count, mean confidence and accuracy in bins, under names such as before/svhn."""
        return read_arrays(self.folder / "figures" / "reliability.safetensors")


def to_rgb(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return (N, C, H, W) with one or three channels as (N, H, W, 3)."""
    last = np.moveaxis(x, 1, -1).astype(np.uint8)
    return np.repeat(last, 3, axis=-1) if last.shape[-1] == 1 else last


def read_arrays(path: Path) -> Arrays:
    """Return the arrays of a file; empty if it is missing or damaged, so its figure is left out."""
    try:
        return load(read_safetensors(path))
    except (UnseenError, ValueError, TypeError, KeyError, safetensors.SafetensorError):
        return {}  # numpy has no type for some that safetensors has: KeyError


AdaptationResults = tuple[list[dict[str, Any]], dict[str, Any]]  # summary rows, the paper's values


@dataclass(frozen=True)
class ReportInputs:
    """Runs and results in the given folders, and what could not be used, with the reason."""

    runs: list[FinishedRun]
    score_comparisons: list[dict[str, Any]]  # of `unseen compare-scores`, one for each task
    adaptations: list[AdaptationResults]  # of `unseen adapt-grid`
    left_out: list[str]


def read_folders(folders: Sequence[Path]) -> ReportInputs:
    """Read every run and result in the folders and below them."""
    runs: dict[str, FinishedRun] = {}
    scores: dict[Path, list[dict[str, Any]]] = {}
    adaptations: dict[Path, AdaptationResults] = {}
    left_out: list[str] = []
    for path in _candidates(folders):
        try:
            complete_writes(path.parent)
            content = read_json_value(path)
            if path.name == SCORES_FILE and isinstance(content, dict) and content.get("tasks"):
                validate(ScoresFile, content, path.name)
                scores[path.resolve()] = list(content["tasks"])
            elif path.name == "summary.json" and _is_adaptation(content):
                validate(SummaryFile, {"rows": content}, path.name)
                adaptations[path.resolve()] = (content, _paper_values(path))
            elif path.name == "config.json" and isinstance(content, dict) and "run" in content:
                run = _read_run(path.parent, content)
                same = runs.setdefault(run.config["run"], run)
                if same is not run:
                    left_out.append(f"{run.folder}: the same run as {same.folder}")
        except UnseenError as error:
            left_out.append(f"{path.parent}: {error}")
    if not (runs or scores or adaptations):
        reasons = f": {'; '.join(left_out[:3])}" if left_out else ""
        raise UnseenError(
            f"no finished run in {', '.join(map(str, folders))}{reasons}; "
            "a run is a folder with config.json and records.jsonl, as `unseen train` writes it"
        )
    comparisons = [facts for tasks in scores.values() for facts in tasks]
    return ReportInputs(list(runs.values()), comparisons, list(adaptations.values()), left_out)


def _candidates(folders: Sequence[Path]) -> list[Path]:
    paths: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            raise UnseenError(
                f"{folder} is not a folder: name run folders, or folders that contain some"
            )
        names = ("config.json", SCORES_FILE, "summary.json")
        paths += sorted(path for name in names for path in folder.rglob(name))
    return paths


def _is_adaptation(rows: Any) -> bool:
    """Only the results of adaptation have metrics of the source beside those of the target."""
    return isinstance(rows, list) and any(
        isinstance(row, dict) and str(row.get("metric")).startswith("source_") for row in rows
    )


def _paper_values(summary: Path) -> dict[str, Any]:
    """Return the paper's values from the runs.json beside a summary."""
    path = summary.with_name("runs.json")
    if not path.exists():
        return {}
    return validate(RunsPage, read_json_value(path), path.name).paper


def _read_run(folder: Path, config: dict[str, Any]) -> FinishedRun:
    fields = validate(RunFields, config, "config.json")
    if not isinstance(fields.loop, dict) or type(fields.loop.get("steps")) is not int:
        raise UnseenError("config.json: loop must have the number of steps")
    if fields.adapted is not None:
        raise UnseenError(
            f"adapted to {fields.adapted.get('domain')} with its labels, so the domain is "
            "not unseen; `unseen adapt` prints the metrics of adapted models"
        )
    if not (folder / "done").exists():
        raise UnseenError("not finished: continue it with `unseen train --resume`")
    config = read_config(config, "config.json")
    run = FinishedRun(folder, config, read_records(folder / "records.jsonl", finite=True))
    if not run.values:
        raise UnseenError(f"no metric on any domain: run `unseen evaluate {folder}`")
    return run
