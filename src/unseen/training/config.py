"""From presets and key=value words to the settings of a run; what is unknown or of the wrong kind is named."""

from __future__ import annotations

import inspect
import json
import math
import types
import typing
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from unseen.api import Method, Task
from unseen.augmentations import augmentations_named
from unseen.checks import check_choice, check_int
from unseen.errors import UnseenError

LOOP: dict[str, Any] = {
    "steps": 1000,
    "batch": 32,
    "augment": None,  # a batch transform by name, or several in a list, before every step
    "decay": "none",  # of every learning rate, to 0 at the last step: none, linear or cosine
    "log_every": 10,
    "checkpoint_every": 100,
    "keep": 0,  # weights kept on the way, evenly spaced, for choosing among them afterwards
}

DECAYS: dict[
    str, Callable[[float], float]
] = {  # of the share of steps already done to the share of the rate that is left
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}


class Resolved(NamedTuple):
    """The settings of a run, by whom they are for."""

    loop: dict[str, Any]
    method: dict[str, Any]
    model: dict[str, Any]


def model_settings(task: Task) -> dict[str, inspect.Parameter]:
    """What can be set of a task's model: the keyword-only arguments of its `model`."""
    try:
        parameters = inspect.signature(task.model, eval_str=True).parameters
    except NameError:  # an annotation names what its module does not know: then a default says of what kind a setting is
        parameters = inspect.signature(task.model).parameters
        parameters = MappingProxyType(
            {n: p.replace(annotation=type(p.default)) for n, p in parameters.items()}
        )
    except (ValueError, TypeError):  # a builtin has no signature, and nothing to set
        return {}
    return {
        name: p
        for name, p in parameters.items()
        if p.kind is p.KEYWORD_ONLY and matches_type(p.default, p.annotation)
    }


def resolve(task: Task, method: type[Method], preset: str, overrides: dict[str, Any]) -> Resolved:
    """The settings of a run: the defaults, the method's preset, the task's preset, then the overrides."""
    if (
        preset not in task.presets and preset != "fast"
    ):  # a task may leave everything to the defaults
        raise UnseenError(
            f'{task.name} has no preset "{preset}"; it has: {", ".join(task.presets) or "none"}'
        )
    of_method, of_model = method.settings_of(), model_settings(task)
    if twice := [name for name in of_model if name in of_method or name in LOOP]:
        raise UnseenError(
            f"the model of {task.name} has a setting {', '.join(twice)}, which {method.name} has too: rename it"
        )
    known = {**of_model, **of_method}
    of_task = dict(task.presets.get(preset, {}))
    for_method = {
        name: of_task.pop(name) for name in list(of_task) if isinstance(of_task[name], dict)
    }.get(method.name, {})
    chosen = {
        "sites": task.sites,
        "embedding": task.embedding,
        "ignore_label": task.ignore_label,
        **method.presets.get(preset, {}),
        **of_task,
        **for_method,
    }
    if unknown := [name for name in overrides if name not in known and name not in LOOP]:
        raise UnseenError(
            f"{method.name} has no setting {', '.join(unknown)}; there are: {', '.join([*LOOP, *known])}"
        )
    if unknown := [name for name in chosen if name not in known and name not in LOOP]:
        advice = f"there are: {', '.join([*LOOP, *known])}; what is for one method only goes under its name"
        raise UnseenError(
            f'preset "{preset}" of {task.name}: {method.name} has no setting {", ".join(unknown)}; {advice}'
        )
    chosen |= overrides
    loop = {name: chosen.get(name, default) for name, default in LOOP.items()}
    for name in ("steps", "batch", "log_every", "checkpoint_every"):
        check_int(name, loop[name], 1)
    check_int("keep", loop["keep"], 0)
    loop["decay"] = check_choice("decay", loop["decay"] or "none", ("none", *DECAYS))
    if isinstance(loop["augment"], list | tuple):
        loop["augment"] = list(loop["augment"])  # as a configuration on disk has it
    augmentations_named(loop["augment"])
    hints = {name: p.annotation for name, p in known.items()}
    settings = {name: value for name, value in chosen.items() if name in known}
    for name, value in settings.items():
        if (
            value is None
            and matches_type("none", hints[name])
            and not matches_type(None, hints[name])
        ):
            settings[name] = value = (
                "none"  # `--set mixup=none` reads as nothing, and means the choice of that name
            )
        if matches_type("a name", hints[name]) and not matches_type(0, hints[name]):
            settings[name] = value = _as_names(
                value
            )  # layers of nn.Sequential are called 0, 1, ...
        if not matches_type(value, hints[name]):
            raise UnseenError(f"{name} must be {describe_type(hints[name])}, not {value!r}")
    return Resolved(
        loop,
        {name: value for name, value in settings.items() if name in of_method},
        {name: settings.get(name, p.default) for name, p in of_model.items()},
    )


def _as_names(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_names(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def parse(words: list[str]) -> dict[str, Any]:
    """key=value words as a dict; values are JSON where they read as such, else text; a,b is a list."""
    settings = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UnseenError(f'a setting is written key=value, not "{word}"')
        settings[name.strip()] = _value(text.strip())
    return settings


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    return text.split(",") if "," in text else text


def matches_type(value: Any, hint: Any) -> bool:
    """Is the value of the kind that an annotation asks for?"""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(matches_type(value, option) for option in typing.get_args(hint))
    if origin is Literal:
        return value in typing.get_args(hint) and not isinstance(value, bool)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe_type(hint: Any) -> str:
    """An annotation in words."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(option) for option in typing.get_args(hint)))
    if origin is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a name",
        type(None): "none",
    }
    return names.get(hint, "a list of names")
