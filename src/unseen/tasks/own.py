"""A user's own task, named as package.module:function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from unseen.api import Task
from unseen.errors import Stopped, UnseenError
from unseen.user_code import describe_error, describe_failure, register

WHAT = "a function that returns a Task"


def own_task(spec: str) -> Task:
    """Import the module of "package.module:function" or "...:function/variant"; call the function.

    Whatever the code raises becomes one UnseenError that names its file and line.
    """
    name, slash, variant = spec.partition("/")
    factory = import_own(name, WHAT, spec)
    task = call_own(spec, lambda: factory(*([variant] if slash else [])), WHAT)
    if not isinstance(task, Task):
        raise UnseenError(f'"{spec}" must return an unseen.Task, got {type(task).__name__}')
    return task


def import_own(name: str, what: str, spec: str | None = None) -> Callable[..., Any]:
    """Return what "package.module:function" names; `what` says in errors what it should be."""
    module, _, function = name.partition(":")
    if "" not in sys.path:  # a console script does not search the working directory
        sys.path.append("")  # last, so that it shadows no installed package

    def found() -> Any:
        value = getattr(importlib.import_module(module), function)
        register(module)
        return value

    return call_own(spec or name, found, what)  # type: ignore[no-any-return]


def call_own(spec: str, call: Callable[[], Any], what: str) -> Any:
    """Return what the call of the user's code returns; what it raises becomes one UnseenError."""
    try:
        return call()
    except (KeyboardInterrupt, Stopped, UnseenError):
        raise
    except BaseException as error:  # also SystemExit, which would end the command without a word
        problem = describe_failure(error) or (
            f"{describe_error(error)}; name {what}, as "
            "package.module:function, and run in the folder that contains the package"
        )
        made = what.rpartition(" ")[2].lower()
        raise UnseenError(f'cannot make a {made} from "{spec}": {problem}') from error
