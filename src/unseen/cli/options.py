"""Options shared by several commands, and the output of results and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from unseen.api import Task
from unseen.cli.messages import say as say
from unseen.cli.output import emit as emit
from unseen.cli.output import stdout_for_results_only as stdout_for_results_only
from unseen.errors import UnseenError
from unseen.experiments.run_task import task_of_run_folder
from unseen.training.run import Run


def parse_int(_: Any, tokens: Sequence[Token]) -> int:
    """Convert an option to an integer; 2.5 is an error, not 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"expected a whole number, not {tokens[0].value}") from None


def parse_ints(kind: Any, tokens: Sequence[Token]) -> list[int]:
    return [parse_int(kind, [token]) for token in tokens]


Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON document to stdout.")
]
Flag = Parameter(negative="")
Device = Annotated[Literal["auto", "cpu", "cuda"], Parameter(help="Device to compute on.")]
Seed = Annotated[int, Parameter(converter=parse_int, help="Seed of all random numbers.")]
Count = Annotated[int, Parameter(converter=parse_int)]
CountOrNone = Annotated[int | None, Parameter(converter=parse_int)]
RunFolder = Annotated[Path, Parameter(help="Folder of a finished run.")]
TaskWord = Annotated[
    str | None,
    Parameter(
        name="--task", help="Required for a task of your own, given as package.module:function."
    ),
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="One setting as key=value; repeatable. `unseen methods NAME` lists the settings.",
    ),
]


@dataclass(frozen=True)
class RunData:
    """Options of commands that read a run: other data, and permission to import its network.

    Parameters
    ----------
    data
        Manifest or folder of other data to use as unseen domains, for a run trained on --data; or
        the run's own data in another place. By default the data that the run was trained on.
    model
        The network that the run was trained with, as package.module:function.
    method
        Your own method that the run was trained with, as package.module:Class.
    trust_code
        Import the network and the method that the run names.
    """

    data: Path | None = None
    model: str | None = None
    method: str | None = None
    trust_code: Annotated[bool, Flag] = False


OwnData = Annotated[RunData | None, Parameter(name="*")]


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
