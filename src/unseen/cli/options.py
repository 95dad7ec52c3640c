"""Options shared by several commands, and the output of results and messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from unseen.api import Task
from unseen.cli.messages import say as say
from unseen.cli.output import emit as emit
from unseen.cli.output import stdout_for_results_only as stdout_for_results_only
from unseen.errors import UnseenError
from unseen.methods import method_named
from unseen.tasks import task_named
from unseen.tasks.own_files import task_of_run
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
    raise UnseenError(f"add --domain, one of {', '.join([task.source.name, *names])}")


def task_of(run: Run, name: str | None, own: RunData | None = None, *, pool: bool = False) -> Task:
    """Return the task of a run; a user's own code is imported only if an option allows it.

    Args:
        pool: split targets of one's own data that have no splits into halves, for adaptation.
    """
    config, own = run.config, own or RunData()
    _import_method(run, config.get("method_word"), own)
    if config.get("data") is not None:
        if name is not None:
            raise UnseenError(f"{run.folder} was trained on --data: leave out --task")
        return task_of_run(
            config["data"],
            f'{run.folder / "config.json"}, "data"',
            data=None if own.data is None else str(own.data),
            model=own.model,
            trust_code=own.trust_code,
            pool=pool,
        )
    if own.data is not None or own.model is not None:
        raise UnseenError(
            f"{run.folder} was trained on the task {config.get('task')}, not on --data: leave out "
            "--data and --model"
        )
    recorded = str(config.get("task_word", config.get("task")))
    if name is None and ":" in recorded:
        raise UnseenError(
            f"{run.folder} was trained on your own task {recorded}: add --task {recorded}"
        )
    return task_named(recorded if name is None else name)


def _import_method(run: Run, recorded: str | None, own: RunData) -> None:
    """Import the user's own method of a run, if an option allows it."""
    if recorded is None:
        if own.method is not None:
            raise UnseenError(f"{run.folder} was trained with a built-in method: omit --method")
        return
    if own.method is None and not own.trust_code:
        raise UnseenError(
            f"{run.folder} was trained with your own method {recorded}: add --method {recorded}, "
            "or --trust-code"
        )
    method_named(own.method or recorded)


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
