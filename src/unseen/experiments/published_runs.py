"""Find the published run with the same configuration, in the runs.json of a grid's results.

Run folders are not published, so these files may be all that is left of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.reading import read_json_value
from unseen.report.tables.grid import CONFIG_FIELDS
from unseen.schema import validate
from unseen.schema.results import PublishedRunFields, PublishedRunsFile
from unseen.training.identity import difference

RUNS = "runs.json"
Key = tuple[str, str, str, int]  # variant, method, setting, seed: the cell of a table


@dataclass(frozen=True)
class PublishedRun:
    """A run of a runs.json."""

    path: Path
    key: Key
    config: dict[str, Any]
    metric: str
    samples: int | None  # evaluated per domain at most; None is all
    domains: tuple[str, ...] | None  # unseen ones; None in files that are older than variants
    figures: dict[str, dict[str, float]]  # by selection of the checkpoint, then by domain
    chosen: dict[str, int]  # step of the checkpoint, by selection
    steps: int
    seconds: float

    @property
    def label(self) -> str:
        variant, method, setting, seed = self.key
        name = method if setting == "default" else f"{method} {setting}"
        return f"{variant} {name} seed {seed}"

    def mismatch(
        self, identity: Mapping[str, Any], domains: Sequence[str], metric: str, samples: int | None
    ) -> str:
        """Return one difference from the run that a grid asks for, or an empty string.

        Configurations are compared after migration to the current format.
        """
        if self.metric != metric:
            return f"with the metric {self.metric}, now it is {metric}"
        if self.samples != samples:
            return f"on {self.samples or 'all'} samples per domain, now it is {samples or 'all'}"
        if self.domains is not None and set(self.domains) != set(domains):
            return f"on the domains {', '.join(self.domains)}, now they are {', '.join(domains)}"
        if changed := difference(self.config, dict(identity)):
            name, old, new = changed
            return f"with {name} = {old!r}, now it is {new!r}"
        return ""

    def results_for(self, domains: Sequence[str]) -> dict[str, Any] | None:
        """Return what a table needs, or None if a figure of these domains is missing."""
        complete = {
            selection: by_domain
            for selection, by_domain in self.figures.items()
            if set(domains) <= set(by_domain)
        }
        if "last" not in complete:
            return None
        return {
            "config": self.config,
            "figures": complete,
            "chosen": {name: step for name, step in self.chosen.items() if name in complete},
            "steps": self.steps,
            "seconds": self.seconds,
        }


def read_published_runs(folder: Path) -> list[PublishedRun]:
    """Read the runs of a folder of results."""
    path = folder / RUNS
    try:
        content = read_json_value(path)
    except UnseenError as error:
        raise UnseenError(f"{error}; name a folder that `unseen bench` wrote") from error
    file = validate(PublishedRunsFile, content, f"{path} is not what `unseen bench` writes")
    runs = zip(file.runs, content["runs"], strict=True)
    return [_parse_run(path, file, run, fields) for run, fields in runs]


def _parse_run(
    path: Path, file: PublishedRunsFile, run: PublishedRunFields, fields: dict[str, Any]
) -> PublishedRun:
    config = {
        **{name: fields[name] for name in CONFIG_FIELDS if name in fields},
        "task": file.task,
        "method": run.method,
        "variant": run.variant,
        "seed": run.seed,
    }
    of_variant = file.variants.get(run.variant)
    return PublishedRun(
        path=path,
        key=(run.variant, run.method, run.setting, run.seed),
        config=config,
        metric=file.metric,
        samples=file.samples,
        domains=None if of_variant is None else tuple(of_variant.domains),
        figures={"last": run.figures["last"], **run.figures},
        chosen=run.chosen,
        steps=run.loop.steps,
        seconds=run.seconds,
    )


def find_published(
    published: Iterable[PublishedRun],
    identity: Mapping[str, Any],
    targets: Sequence[str],
    source: str,
    metric: str,
    samples: int | None,
) -> dict[str, Any] | None:
    """Find the published run with the same configuration, and return its results."""
    matches = [
        (run, results)
        for run in published
        if not run.mismatch(identity, targets, metric, samples)
        and (results := run.results_for([*targets, source]))
    ]
    for run, results in matches[1:]:
        if results["figures"]["last"] != matches[0][1]["figures"]["last"]:
            raise UnseenError(
                f"{run.path} and {matches[0][0].path} have different results of {run.label}: "
                "name only one of them"
            )
    return matches[0][1] if matches else None


def find_mismatches(
    published: Iterable[PublishedRun], key: Key, *wanted: Any
) -> list[tuple[PublishedRun, str]]:
    """Return the published runs of a table's cell that do not count for it, with reasons."""
    return [
        (run, reason) for run in published if run.key == key and (reason := run.mismatch(*wanted))
    ]


def describe_mismatches(mismatches: Iterable[tuple[PublishedRun, str]]) -> list[str]:
    """Return one message for each method and reason, not for each seed and variant."""
    groups: dict[tuple[Any, ...], list[PublishedRun]] = {}
    for run, reason in mismatches:
        _, method, setting, _ = run.key
        groups.setdefault((run.path, method, setting, reason), []).append(run)
    return [
        f"{path} has {runs[0].label}, but {reason}: it does not count"
        + (f", nor do {len(runs) - 1} others of {method}" if len(runs) > 1 else "")
        for (path, method, _, reason), runs in groups.items()
    ]


def check_nothing_lost(folder: Path, keys: Iterable[Key]) -> None:
    """Refuse to write tables of these runs over published ones that have others."""
    kept = set(keys)
    if lost := [run.label for run in read_published_runs(folder) if run.key not in kept]:
        raise UnseenError(
            f"{folder / RUNS} has {len(lost)} runs that these tables leave out, {lost[0]} first, "
            "and may be the only record of them: finish these runs, or write elsewhere "
            '(results = "..." in the grid). Nothing was written'
        )
