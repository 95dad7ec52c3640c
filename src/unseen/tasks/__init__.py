"""One task, one file. TASKS is the table that the command line, the tests and the docs read."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from unseen.contracts import Task
from unseen.errors import UnseenError
from unseen.tasks.digits import digits
from unseen.tasks.digits_shifts import digits_shifts
from unseen.tasks.mini_digits import mini_digits

TASKS: dict[str, Callable[[], Task]] = {
    "mini_digits": mini_digits,
    "digits": digits,
    "digits_shifts": digits_shifts,
}


def task_named(name: str) -> Task:
    """A task of ours by its name, or a user's as "package.module:function", which is imported because they named it."""
    if ":" not in name:
        if name not in TASKS:
            raise UnseenError(f'no task "{name}"; there are: {", ".join(TASKS)}; or name your own as package.module:function')
        return TASKS[name]()
    module, _, function = name.partition(":")
    if "" not in sys.path:  # the console script does not look in the folder it is called from
        sys.path.append("")  # last: what lies there must not stand in for an installed package
    try:
        task = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UnseenError(f'cannot make a task from "{name}": {error}') from error
    if not isinstance(task, Task):
        raise UnseenError(f'"{name}" must return an unseen.Task, it returned {type(task).__name__}')
    return task
