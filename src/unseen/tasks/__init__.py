"""One task, one file. TASKS is the table that the command line, the tests and the docs read."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

from unseen.api import Task
from unseen.errors import UnseenError
from unseen.tasks import (
    amazon_reviews,
    cifar10_c,
    digit_pairs,
    digits,
    driving,
    google_commands,
    mini_digits,
)
from unseen.tasks.tuning import amazon_shifts, cifar_shifts, digits_shifts, speech_shifts

MODULES: dict[str, ModuleType] = {
    "mini_digits": mini_digits,
    "digits": digits,
    "cifar10_c": cifar10_c,
    "driving": driving,
    "amazon_reviews": amazon_reviews,
    "google_commands": google_commands,
    "digit_pairs": digit_pairs,
    # Settings are chosen on these, never on the benchmarks' own targets.
    "digits_shifts": digits_shifts,
    "cifar_shifts": cifar_shifts,
    "amazon_shifts": amazon_shifts,
    "speech_shifts": speech_shifts,
}
TASKS: dict[str, Callable[..., Task]] = {name: module.task for name, module in MODULES.items()}


def variants_of(name: str) -> tuple[str, ...]:
    """The variants of one of our tasks, the default first; none if it comes in one only."""
    return getattr(MODULES[name], "VARIANTS", ())


def task_named(word: str) -> Task:
    """A task of ours as "name" or "name/variant", or a user's as "package.module:function", imported because they named it."""
    name, slash, variant = word.partition("/")
    if ":" not in word:
        variant = variant.replace(
            "->", "_to_"
        )  # a shell wants usps->mnist, as the tables say it, in quotes
        if name not in TASKS:
            raise UnseenError(
                f'no task "{name}"; there are: {", ".join(TASKS)}; or name your own as package.module:function'
            )
        if slash and not variants_of(name):
            raise UnseenError(f'{name} has no variants: write "{name}", not "{word}"')
        if slash and variant not in variants_of(name):
            raise UnseenError(
                f'{name} has no variant "{variant}"; it has: {", ".join(variants_of(name))}'
            )
        return TASKS[name](*([variant] if slash else []))
    module, _, function = name.partition(":")
    if "" not in sys.path:  # the console script does not look in the folder it is called from
        sys.path.append("")  # last: what lies there must not stand in for an installed package
    try:
        task = getattr(importlib.import_module(module), function)(*([variant] if slash else []))
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        told = "name a function that returns a Task, as package.module:function, from the folder that the package lies in"
        raise UnseenError(f'cannot make a task from "{word}": {error}; {told}') from error
    if not isinstance(task, Task):
        raise UnseenError(f'"{word}" must return an unseen.Task, it returned {type(task).__name__}')
    return task
