"""A user's own task, named as package.module:function."""

from __future__ import annotations

import importlib
import sys

from unseen.api import Task
from unseen.errors import Stopped, UnseenError
from unseen.user_code import describe_error, describe_failure, register


def own_task(spec: str) -> Task:
    """Import the module of "package.module:function" or "...:function/variant"; call the function.

    Whatever the code raises becomes one UnseenError that names its file and line.
    """
    name, slash, variant = spec.partition("/")
    module, _, function = name.partition(":")
    if "" not in sys.path:  # a console script does not search the working directory
        sys.path.append("")  # last, so that it shadows no installed package
    try:
        factory = getattr(importlib.import_module(module), function)
        register(module)
        task = factory(*([variant] if slash else []))
    except (KeyboardInterrupt, Stopped, UnseenError):
        raise
    except BaseException as error:  # also SystemExit, which would end the command without a word
        problem = describe_failure(error) or (
            f"{describe_error(error)}; name a function that returns a Task, as "
            "package.module:function, and run in the folder that contains the package"
        )
        raise UnseenError(f'cannot make a task from "{spec}": {problem}') from error
    if not isinstance(task, Task):
        raise UnseenError(f'"{spec}" must return an unseen.Task, got {type(task).__name__}')
    return task
