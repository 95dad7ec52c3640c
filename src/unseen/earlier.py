"""Runs whose folders are gone but whose figures are published: the runs.json of a grid's results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.report.results import TOLD
from unseen.run import difference

RUNS = "runs.json"


def published_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs of a folder of results, each with its configuration, its figures, and the samples it was examined on."""
    path = folder / RUNS
    try:
        said = json.loads(path.read_text())
        of_all = {"task": said["task"], "samples": said.get("samples")}
        return [_published(of_all, run) for run in said["runs"]]
    except OSError as error:
        raise UnseenError(f"{path} cannot be read: {error.strerror}; name a folder that `unseen bench` wrote") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnseenError(f"{path} is not what `unseen bench` writes ({error!r}): name another folder of results") from error


def _published(of_all: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    config = {**{name: run[name] for name in TOLD if name in run}, "task": of_all["task"], "method": run["method"],
              "variant": run.get("variant", "default"), "seed": run["seed"]}  # fmt: skip
    figures = {name: {d: float(value) for d, value in by_domain.items()} for name, by_domain in run["figures"].items()}
    return {"config": config, "samples": of_all["samples"], "figures": figures, "chosen": dict(run["chosen"]),
            "steps": int(run["loop"]["steps"]), "seconds": float(run["seconds"])}  # fmt: skip


def earlier_run(
    published: Iterable[dict[str, Any]], identity: dict[str, Any], domains: Sequence[str], samples: int | None
) -> dict[str, Any] | None:
    """The published run that is this one: the same task, method, seed and settings, examined on as many samples."""
    for run in published:
        if (
            difference(run["config"], identity) is None
            and run["samples"] == samples
            and set(domains) <= set(run["figures"]["last"])
        ):
            return {name: run[name] for name in ("config", "figures", "chosen", "steps", "seconds")}
    return None
