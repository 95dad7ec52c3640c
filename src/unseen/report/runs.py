"""Finished runs as a report sees them: configuration, records and saved arrays, read from disk without anything to run them."""

from __future__ import annotations

import json
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
from unseen.report.tables.scores import SCORES_FILE

NEEDED = {"run": str, "task": str, "method": str, "seed": int, "loop": dict, "settings": dict}
OPTIONAL = {
    "variant": str,
    "model": dict,
    "versions": dict,
    "command": str,
    "class_names": list,
    "overrides": dict,
}
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class FinishedRun:
    """One run's folder: what it was told, what it recorded, what it saved for figures."""

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
        """What the task is measured by: the one thing that is recorded on held-out source data."""
        return next((r["metric"] for r in self.records if r["split"] == "val"), "accuracy")

    @cached_property
    def source(self) -> str:
        """The domain that was learned from: the only one that has records of training."""
        return next((r["domain"] for r in self.records if r["split"] in ("train", "val")), "source")

    @cached_property
    def examined(self) -> dict[int, dict[str, float]]:
        """The metric on the test split of every domain, by step, in the order it was recorded."""
        found: dict[int, dict[str, float]] = {}
        for r in self.records:
            if r["split"] == "test" and r["metric"] == self.metric:
                found.setdefault(r["step"], {})[r["domain"]] = r["value"]
        return dict(sorted(found.items()))

    @property
    def figures(self) -> dict[str, float]:
        """The metric on every domain, of the last checkpoint; empty if the run was never examined."""
        return self.examined.get(self.steps, {})

    @property
    def domains(self) -> list[str]:
        """The unseen domains."""
        return [d for d in self.figures if d != self.source]

    @property
    def average(self) -> float:
        """The mean over unseen domains; nan if the run was never examined."""
        return (
            math.fsum(self.figures[d] for d in self.domains) / len(self.domains)
            if self.domains
            else math.nan
        )

    @property
    def seconds(self) -> float:
        """Of training; nan if it was not recorded."""
        pace = [r["value"] for r in self.records if r["metric"] == "seconds_per_step"]
        return pace[-1] * self.steps if pace else math.nan

    def curve(self, metric: str, split: str = "train") -> tuple[list[int], list[float]]:
        """Steps and values of something recorded on the source."""
        seen = {
            r["step"]: r["value"]
            for r in self.records
            if r["metric"] == metric and r["split"] == split
        }
        return sorted(seen), [seen[step] for step in sorted(seen)]

    def logged(self) -> list[str]:
        """What was recorded while it trained, by name."""
        return list(dict.fromkeys(r["metric"] for r in self.records if r["split"] == "train"))

    @cached_property
    def snapshots(self) -> dict[int, Path]:
        """The files of saved moments, by step."""
        files = self.folder.glob("figures/step_*.safetensors")
        found = {
            int(p.stem.removeprefix("step_")): p
            for p in files
            if p.stem.removeprefix("step_").isdecimal()
        }
        return dict(sorted(found.items()))

    def snapshot(self, step: int) -> Arrays:
        return arrays(self.snapshots[step])

    @cached_property
    def inputs(self) -> NDArray[np.uint8] | None:
        """The samples that the snapshots are of, as pictures (N, H, W, 3), if they can be looked at."""
        x = arrays(self.folder / "figures" / "inputs.safetensors").get("x")
        return None if x is None else pictures(x)

    @cached_property
    def exam(self) -> Arrays:
        """Confusion matrices and examples of every domain, under names such as confusion/svhn."""
        return arrays(self.folder / "figures" / "exam.safetensors")


def pictures(x: NDArray[Any]) -> NDArray[np.uint8]:
    """(N, C, H, W) with one or three channels as (N, H, W, 3)."""
    last = np.moveaxis(x, 1, -1).astype(np.uint8)
    return np.repeat(last, 3, axis=-1) if last.shape[-1] == 1 else last


def arrays(path: Path) -> Arrays:
    """The arrays of a file; none if it is not there or not whole: a figure is then left out."""
    try:
        return load(path.read_bytes())
    except (OSError, ValueError, safetensors.SafetensorError):
        return {}


@dataclass(frozen=True)
class Found:
    """What the given folders hold: runs, results of other commands, and what could not be used, with the reason."""

    runs: list[FinishedRun]
    scores: list[dict[str, Any]]  # of `unseen uncertainty`, a task each
    few_shot: list[
        tuple[list[dict[str, Any]], dict[str, Any]]
    ]  # of `unseen few-shot`: rows, and what the paper reports
    left_out: list[str]


def find(folders: Sequence[Path]) -> Found:
    """Everything a report can be made of, in the folders and below them."""
    runs: dict[str, FinishedRun] = {}
    scores: dict[Path, list[dict[str, Any]]] = {}
    few_shot: dict[Path, tuple[list[dict[str, Any]], dict[str, Any]]] = {}
    left_out: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise UnseenError(f"{folder} is no folder: name run folders, or folders that hold some")
        for path in sorted(
            p for name in ("config.json", SCORES_FILE, "summary.json") for p in folder.rglob(name)
        ):
            try:
                content = json.loads(path.read_text())
                if path.name == SCORES_FILE and isinstance(content, dict) and content.get("tasks"):
                    scores[path.resolve()] = list(content["tasks"])
                elif path.name == "summary.json" and _of_adaptation(content):
                    few_shot[path.resolve()] = (content, _paper_beside(path))
                elif path.name == "config.json" and isinstance(content, dict) and "run" in content:
                    run = _read(path.parent, content)
                    if run.config["run"] in runs:
                        left_out.append(
                            f"{run.folder}: the same run as {runs[run.config['run']].folder}"
                        )
                    else:
                        runs[run.config["run"]] = run
            except UnseenError as error:
                left_out.append(f"{path.parent}: {error}")
            except (
                OSError,
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
                RecursionError,
            ) as error:
                left_out.append(f"{path}: cannot be used: {error}")
    if not (runs or scores or few_shot):
        told = "; ".join(left_out[:3])
        raise UnseenError(
            f"no finished run in {', '.join(map(str, folders))}{': ' + told if told else ''}; "
            "a run is a folder with config.json and records.jsonl, as `unseen train` makes them"
        )
    compared = [facts for tasks in scores.values() for facts in tasks]
    return Found(list(runs.values()), compared, list(few_shot.values()), left_out)


def _of_adaptation(rows: Any) -> bool:
    """Only adaptations are also measured on the source they came from."""
    return isinstance(rows, list) and any(str(row["metric"]).startswith("source_") for row in rows)


def _paper_beside(summary: Path) -> dict[str, Any]:
    """What the paper reports, from the file that `unseen few-shot` writes beside its summary."""
    path = summary.with_name("runs.json")
    return json.loads(path.read_text()).get("paper", {}) if path.exists() else {}


def _read(folder: Path, config: dict[str, Any]) -> FinishedRun:
    for name, kind in {
        **NEEDED,
        **{k: kind for k, kind in OPTIONAL.items() if k in config},
    }.items():
        if not isinstance(config.get(name), kind):
            raise UnseenError(f"its config.json must say {name} as a {kind.__name__}")
    if not isinstance(config["loop"].get("steps"), int):
        raise UnseenError("its config.json must say how many steps, in loop")
    if "adapted" in config:
        domain = config["adapted"].get("domain") if isinstance(config["adapted"], dict) else None
        raise UnseenError(
            f"adapted to {domain} with its labels, so not a model that never saw its domains; `unseen adapt` told its figures"
        )
    if not (folder / "done").exists():
        raise UnseenError("not finished: go on with it with --resume")
    records = []
    for number, line in enumerate((folder / "records.jsonl").read_text().splitlines(), start=1):
        try:
            record = json.loads(line)
            whole = {"step", "domain", "split", "metric"} <= set(record) and not isinstance(
                record["value"], bool
            )
            whole = whole and math.isfinite(record["value"])
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise UnseenError(f"records.jsonl, line {number} is not a record with a finite value")
        records.append(record)
    run = FinishedRun(folder, config, records)
    if not run.domains:
        raise UnseenError(f"never examined: unseen evaluate {folder} does it")
    return run
