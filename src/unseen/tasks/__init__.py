"""Tasks, one file per benchmark. TASKS is the registry."""

from __future__ import annotations

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
from unseen.tasks.own import own_task
from unseen.tasks.own_files import WORD, task_from_word
from unseen.tasks.tuning import amazon_shifts, cifar_shifts, digits_shifts, speech_shifts

MODULES: dict[str, ModuleType] = {
    "mini_digits": mini_digits,
    "digits": digits,
    "cifar10_c": cifar10_c,
    "driving": driving,
    "amazon_reviews": amazon_reviews,
    "google_commands": google_commands,
    "digit_pairs": digit_pairs,
    # Synthetic shifts for choosing settings, which must not use a benchmark's targets.
    "digits_shifts": digits_shifts,
    "cifar_shifts": cifar_shifts,
    "amazon_shifts": amazon_shifts,
    "speech_shifts": speech_shifts,
}
TASKS: dict[str, Callable[..., Task]] = {name: module.task for name, module in MODULES.items()}


def variants_of(name: str) -> tuple[str, ...]:
    """Return the variants of a built-in task, the default first; empty if it has none."""
    return getattr(MODULES[name], "VARIANTS", ())


def task_named(spec: str) -> Task:
    """Return a built-in task, "name" or "name/variant", or a user's.

    A user's task is "package.module:function", or "data:PATH" for a manifest or folder.
    """
    if spec.startswith(WORD):
        return task_from_word(spec)
    name, slash, variant = spec.partition("/")
    if ":" not in spec:
        variant = variant.replace("->", "_to_")  # domain names, e.g. usps->mnist, work too
        if name not in TASKS:
            raise UnseenError(
                f'no task "{name}"; there are: {", ".join(TASKS)}; '
                "or name your own as package.module:function"
            )
        if slash and not variants_of(name):
            raise UnseenError(f'{name} has no variants: write "{name}", not "{spec}"')
        if slash and variant not in variants_of(name):
            raise UnseenError(
                f'{name} has no variant "{variant}"; it has: {", ".join(variants_of(name))}'
            )
        return TASKS[name](*([variant] if slash else []))
    return own_task(spec)
