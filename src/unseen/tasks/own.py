"""A user's own task, named as package.module:function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, Strict, StrictInt, StrictStr

from unseen.api import Domain, Metric, Task
from unseen.detection.scoring import ScoreAt
from unseen.errors import UnseenError
from unseen.schema import Section, validate
from unseen.user_code import describe_error, describe_failure, register

Name = Annotated[str, Strict(), Field(min_length=1)]


class _DomainFields(Section):
    name: Name
    load: Callable[[str], Any]


class _TaskFields(Section):
    """The types of a task's fields; a dataclass does not check them."""

    name: Name
    summary: StrictStr
    source: Domain
    targets: tuple[Domain, ...]
    classes: Annotated[StrictInt, Field(ge=1)]
    model: Callable[..., Any]
    sites: tuple[Name, ...]
    embedding: Name | None
    presets: dict[Name, dict[Name, Any]]
    metric: Metric
    variant: Name
    ignore_label: StrictInt
    class_names: tuple[StrictStr, ...]
    score_at: ScoreAt


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
    except (KeyboardInterrupt, UnseenError):
        raise
    except BaseException as error:  # also SystemExit, which would end the command without a word
        problem = describe_failure(error) or describe_error(error)
        raise UnseenError(
            f'cannot make a task from "{spec}": {problem}; name a function that returns a Task, as '
            "package.module:function, and run in the folder that contains the package"
        ) from error
    if not isinstance(task, Task):
        raise UnseenError(f'"{spec}" must return an unseen.Task, got {type(task).__name__}')
    _check_fields(task, f"task {spec}")
    return task


def _check_fields(task: Task, where: str) -> None:
    validate(_TaskFields, {name: getattr(task, name) for name in _TaskFields.model_fields}, where)
    for domain in (task.source, *task.targets):
        fields = {"name": domain.name, "load": domain.load}
        validate(_DomainFields, fields, f"{where}, domain {domain.name!r}")
