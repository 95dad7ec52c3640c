"""Options that several commands share, said once, and how results and remarks are printed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

from cyclopts import Parameter, Token


def whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """What the option says, if that is a whole number: 2.5 must not pass for 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"a whole number is wanted, not {tokens[0].value}") from None


def whole_numbers(kind: Any, tokens: Sequence[Token]) -> list[int]:
    return [whole_number(kind, [token]) for token in tokens]


Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON document on stdout.")]
Flag = Parameter(negative="")
Device = Annotated[Literal["auto", "cpu", "cuda"], Parameter(help="Where to compute.")]
Seed = Annotated[int, Parameter(converter=whole_number, help="Owns every random number.")]
Count = Annotated[int, Parameter(converter=whole_number)]
CountOrNone = Annotated[int | None, Parameter(converter=whole_number)]
RunFolder = Annotated[Path, Parameter(help="A finished run's folder.")]
TaskWord = Annotated[
    str | None,
    Parameter(name="--task", help="Needed for a task of your own, as package.module:function."),
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="One setting as key=value; repeat it for more; `unseen methods NAME` lists them.",
    ),
]


_results: TextIO | None = (
    None  # where results go while everything else that prints is sent to stderr
)


@contextlib.contextmanager
def stdout_for_results_only() -> Iterator[None]:
    """While open, only `emit` reaches stdout: what a user's own task prints must not spoil the one JSON document."""
    global _results
    _results = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _results = None


def emit(result: dict[str, Any], as_json: bool) -> bool:
    """Print the result as the one JSON document on stdout, if that was asked for."""
    if as_json:
        print(json.dumps(result, indent=2), file=_results or sys.stdout)
    return as_json


def say(text: str) -> None:
    print(f"unseen: {text}", file=sys.stderr)
