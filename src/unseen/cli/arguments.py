"""Arguments and options shared by several commands. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token


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
RunOrModel = Annotated[
    Path, Parameter(help="Folder of a finished run, or an exported model, model.onnx.")
]
