"""Runs whose folders are gone but whose figures are published: the runs.json of a grid's results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.report.tables.grid import CONFIG_FIELDS
from unseen.training.identity import difference

RUNS = "runs.json"
Key = tuple[str, str, str, int]  # variant, method, setting, seed: what a line of a table is made of


@dataclass(frozen=True)
class PublishedRun:
    """What runs.json says of a run."""

    path: Path
    key: Key
    config: dict[str, Any]
    metric: str
    samples: int | None  # of each domain at most, in its exam
    domains: tuple[str, ...] | None  # unseen ones; None in files that are older than variants
    figures: dict[str, dict[str, float]]  # by selection
    chosen: dict[str, int]
    steps: int
    seconds: float

    @property
    def label(self) -> str:
        variant, method, setting, seed = self.key
        return " ".join(
            [variant, method, *([] if setting == "default" else [setting]), "seed", str(seed)]
        )

    def unlike(
        self, identity: Mapping[str, Any], domains: Sequence[str], metric: str, samples: int | None
    ) -> str:
        """Why this is not the run that a grid asks for: one reason, or nothing."""
        if self.metric != metric:
            return f"with the metric {self.metric}, now it is {metric}"
        if self.samples != samples:
            return (
                f"on {self.samples or 'all'} samples of each domain, now it is {samples or 'all'}"
            )
        if self.domains is not None and set(self.domains) != set(domains):
            return f"on the domains {', '.join(self.domains)}, now they are {', '.join(domains)}"
        if found := difference(self.config, dict(identity)):
            name, old, new = found
            return f"with {name} = {old!r}, now it is {new!r}"
        return ""

    def as_measured(self, domains: Sequence[str]) -> dict[str, Any] | None:
        """What a table needs, if the figures of these domains are all there."""
        if not set(domains) <= set(self.figures["last"]):
            return None
        whole = {
            name: by_domain
            for name, by_domain in self.figures.items()
            if set(domains) <= set(by_domain)
        }
        chosen = {name: step for name, step in self.chosen.items() if name in whole}
        return {
            "config": self.config,
            "figures": whole,
            "chosen": chosen,
            "steps": self.steps,
            "seconds": self.seconds,
        }


def published_runs(folder: Path) -> list[PublishedRun]:
    """The runs of a folder of results."""
    path = folder / RUNS
    try:
        said = json.loads(path.read_text())
        return [_published(path, said, run) for run in said["runs"]]
    except OSError as error:
        raise UnseenError(
            f"{path} cannot be read: {error.strerror}; name a folder that `unseen bench` wrote"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UnseenError(
            f"{path} is not what `unseen bench` writes ({what}): name another folder of results"
        ) from error


def _published(path: Path, said: dict[str, Any], run: dict[str, Any]) -> PublishedRun:
    variant = run.get("variant", "default")
    config = {**{name: run[name] for name in CONFIG_FIELDS if name in run}, "task": said["task"], "method": run["method"],
              "variant": variant, "seed": run["seed"]}  # fmt: skip
    if not isinstance(run["settings"], dict) or not isinstance(run["loop"], dict):
        raise ValueError("a run's settings and loop must be tables")
    figures = {
        name: {d: _share(value) for d, value in by_domain.items()}
        for name, by_domain in run["figures"].items()
    }
    of_variant = said.get("variants", {}).get(variant)
    return PublishedRun(
        path=path,
        key=(variant, run["method"], run["setting"], run["seed"]),
        config=config,
        metric=said.get("metric", "accuracy"),
        samples=said.get("samples"),
        domains=None if of_variant is None else tuple(of_variant["domains"]),
        figures={"last": figures["last"], **figures},
        chosen=dict(run["chosen"]),
        steps=int(run["loop"]["steps"]),
        seconds=float(run["seconds"]),
    )


def _share(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (math.isfinite(value) and 0 <= value <= 1)
    ):
        raise ValueError(f"a figure must lie in 0..1, not {value!r}")
    return float(value)


def earlier_run(
    published: Iterable[PublishedRun], identity: Mapping[str, Any], targets: Sequence[str], source: str, metric: str,
    samples: int | None,
) -> dict[str, Any] | None:  # fmt: skip
    """What is published of the very run: the same task, method, seed and settings, examined on as many samples."""
    same = [run for run in published if not run.unlike(identity, targets, metric, samples)]
    found = [(run, made) for run in same if (made := run.as_measured([*targets, source]))]
    for run, made in found[1:]:
        if made["figures"]["last"] != found[0][1]["figures"]["last"]:
            raise UnseenError(
                f"{run.path} and {found[0][0].path} say different things of {run.label}: name one of them alone"
            )
    return found[0][1] if found else None


def why_not(
    published: Iterable[PublishedRun], key: Key, *asked: Any
) -> list[tuple[PublishedRun, str]]:
    """Runs that are published under a line's name and do not count for it, and why."""
    return [(run, why) for run in published if run.key == key and (why := run.unlike(*asked))]


def remarks_on(left_out: Iterable[tuple[PublishedRun, str]]) -> list[str]:
    """What a person is told of runs that do not count: once for each method and reason, not for each seed and variant."""
    alike: dict[tuple[Any, ...], list[PublishedRun]] = {}
    for run, why in left_out:
        _, method, setting, _ = run.key
        alike.setdefault((run.path, method, setting, why), []).append(run)
    return [
        f"{path} has {runs[0].label}, but {why}: it does not count"
        + (f", nor do {len(runs) - 1} others of {runs[0].key[1]}" if len(runs) > 1 else "")
        for (path, _, _, why), runs in alike.items()
    ]


def must_keep(folder: Path, kept: Iterable[Key]) -> None:
    """Refuse to write tables of these runs over published ones if a run that only those have would be lost."""
    keys = set(kept)
    if lost := [run.label for run in published_runs(folder) if run.key not in keys]:
        raise UnseenError(
            f"{folder / RUNS} has {len(lost)} runs that these tables leave out, {lost[0]} first, and it may be all that is left "
            'of them: finish them, or write elsewhere (results = "..." in the grid). Nothing was written'
        )
