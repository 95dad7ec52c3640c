"""Options that several commands share, said once, and how results and remarks are printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="One JSON document on stdout.")]
Flag = Parameter(negative="")
Device = Annotated[Literal["auto", "cpu", "cuda"], Parameter(help="Where to compute.")]
Seed = Annotated[int, Parameter(help="Owns every random number.")]
RunFolder = Annotated[Path, Parameter(help="A finished run's folder; it is not changed.")]
TaskWord = Annotated[str | None, Parameter(name="--task", help="Needed for a task of your own, as package.module:function.")]
Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="One setting as key=value; repeat it for more; `unseen methods` lists them."),
]


def emit(result: dict[str, Any], as_json: bool) -> bool:
    """Print the result as the one JSON document on stdout, if that was asked for."""
    if as_json:
        print(json.dumps(result, indent=2))
    return as_json


def say(text: str) -> None:
    print(f"unseen: {text}", file=sys.stderr)
