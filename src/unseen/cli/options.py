"""Options shared by several commands, and the output of results and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from unseen.api import Task
from unseen.cli.arguments import Count as Count
from unseen.cli.arguments import CountOrNone as CountOrNone
from unseen.cli.arguments import Device as Device
from unseen.cli.arguments import Flag as Flag
from unseen.cli.arguments import Json as Json
from unseen.cli.arguments import OwnData as OwnData
from unseen.cli.arguments import RunData as RunData
from unseen.cli.arguments import RunFolder as RunFolder
from unseen.cli.arguments import Seed as Seed
from unseen.cli.arguments import Settings as Settings
from unseen.cli.arguments import TaskWord as TaskWord
from unseen.cli.arguments import parse_int as parse_int
from unseen.cli.arguments import parse_ints as parse_ints
from unseen.cli.messages import say as say
from unseen.cli.output import emit as emit
from unseen.cli.output import stdout_for_results_only as stdout_for_results_only
from unseen.errors import UnseenError
from unseen.experiments.run_task import task_of_run_folder
from unseen.training.run import Run


def only_domain(task: Task, domain: str | None) -> str:
    """Return the domain that was named, or the only unseen one."""
    if domain is not None:
        return domain
    names = [d.name for d in task.targets]
    if len(names) == 1:
        return names[0]
    if not names:
        raise UnseenError(
            "the run has no unseen domain: add --data FOLDER, or --domain "
            f"{task.source.name}, which is the held-out source"
        )
    raise UnseenError(f"add --domain, one of {', '.join([task.source.name, *names])}")


def task_of(run: Run, name: str | None, own: RunData | None = None, *, pool: bool = False) -> Task:
    """Return the task of a run; a user's own code is imported only if an option allows it.

    Args:
        pool: split targets of one's own data that have no splits into halves, for adaptation.
    """
    given = asdict(own or RunData())
    given["data"] = None if given["data"] is None else str(given["data"])
    return task_of_run_folder(run, name, pool=pool, **given)


def task_title(result: dict[str, Any]) -> str:
    """Return the task's name, with its variant if that is not the default."""
    variant = result.get("variant", "default")
    return result["task"] if variant == "default" else f"{result['task']}/{variant}"


def dotted(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of settings; fields of a group are named as --set takes them."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
