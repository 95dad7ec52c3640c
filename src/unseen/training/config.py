"""Resolve presets and overrides to the settings of one run."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Le, Lt
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BeforeValidator,
    Strict,
    StrictBool,
    StrictInt,
    TypeAdapter,
    ValidationError,
)

from unseen.api import Method, Task
from unseen.augmentations import Views
from unseen.checks import LARGEST_INT
from unseen.errors import UnseenError, naming
from unseen.methods import METHODS
from unseen.nn.precision import Amp
from unseen.schema import (
    Section,
    build,
    group_defaults,
    group_unions,
    merge,
    plain,
    settings_schema,
    strict_type,
    validate,
)
from unseen.schema.augment import parse_augment
from unseen.schema.migration import migrate_loop
from unseen.training.recipes import recipe_named

Count = Annotated[StrictInt, Ge(1), Le(LARGEST_INT)]
PositiveNumber = Annotated[float, Strict(), AllowInfNan(False), Gt(0)]
Fraction = Annotated[float, Strict(), Gt(0), Lt(1)]
ViewCount = Annotated[StrictInt, Ge(1), Le(16)]


class LoopSettings(Section):
    """Settings of the training loop, for every method."""

    steps: Count = 1000
    batch_size: Count = 32
    epochs: Count | None = None  # in place of steps: passes over the training data
    augment: Annotated[Any, BeforeValidator(parse_augment)] = None  # batch transforms, or a list
    # Views of a batch in a step: the batch itself, then augmented ones.
    views: Annotated[ViewCount, AfterValidator(lambda n: None if n == 1 else n)] | None = None
    lr_schedule: Annotated[
        Literal["none", "linear", "cosine"],
        BeforeValidator(lambda value: "none" if value in (None, "constant") else value),
    ] = "none"  # linear and cosine end at 0
    # Largest change of an input value by an adversary, which searches before every step.
    ball: PositiveNumber | None = None
    clip: PositiveNumber | None = None  # largest norm of the gradients of an optimizer
    ema: Fraction | None = None  # decay of the averaged weights, which evaluation uses
    amp: Amp | None = None  # the model's passes in 16 bits
    # Samples of a process that are in memory at a time; a step adds the gradients of its parts.
    microbatch: Count | None = None
    # Activations within blocks are computed again in the backward pass, not kept.
    activation_checkpointing: (
        Annotated[StrictBool, AfterValidator(lambda on: on or None)] | None
    ) = None
    log_every: Count = 10
    checkpoint_every: Count = 100
    # Evenly spaced weights to keep, the final ones included, for choosing among them afterwards.
    num_checkpoints: Annotated[StrictInt, Ge(0), Le(LARGEST_INT)] = 0


class Resolved(NamedTuple):
    """The settings of a run: of its loop, of its method's constructor and of its task's model."""

    loop: LoopSettings
    method: dict[str, Any]
    model: dict[str, Any]


def model_settings(task: Task) -> dict[str, inspect.Parameter]:
    """Return the settings of a task's model: the keyword-only arguments of `task.model`."""
    return factory_settings(task.model)


def factory_settings(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the keyword-only arguments of a function that makes a model."""
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters
    except NameError:  # an annotation that its module cannot resolve: infer it from the default
        parameters = inspect.signature(factory).parameters
        parameters = MappingProxyType(
            {n: p.replace(annotation=type(p.default)) for n, p in parameters.items()}
        )
    except (ValueError, TypeError):  # a builtin has no signature
        return {}
    typed = {
        n: p.replace(annotation=type(p.default)) if p.annotation is p.empty else p
        for n, p in parameters.items()
    }
    return {n: p for n, p in typed.items() if p.kind is p.KEYWORD_ONLY and _has_default(p)}


def _has_default(parameter: inspect.Parameter) -> bool:
    try:
        TypeAdapter(strict_type(parameter.annotation)).validate_python(parameter.default)
    except ValidationError:
        return False
    return True


def resolve(
    task: Task,
    method: type[Method],
    preset: str,
    overrides: Mapping[str, Any],
    where: str = "--set",
    recipe: str | None = None,
) -> Resolved:
    """Merge defaults, presets of method and task, a recipe and overrides, in this order.

    `where` names the source of the overrides in error messages.
    """
    if preset not in task.presets and preset != "fast":  # every task has "fast": the defaults
        known = ", ".join(task.presets) or "none"
        raise UnseenError(f'{task.name} has no preset "{preset}"; it has: {known}')
    of_method, of_model = method.settings_of(), model_settings(task)
    if twice := [n for n in of_model if n in of_method or n in LoopSettings.model_fields]:
        raise UnseenError(
            f"the model of {task.name} has a setting {', '.join(twice)}, "
            f"which {method.name} has too: rename it"
        )
    of_task = {n: v for n, v in task.presets.get(preset, {}).items() if n != "method"}
    # A mapping under a method's name is for that method only.
    by_method = {n: of_task.pop(n) for n in (*METHODS, method.name) if n in of_task}
    of_roles: dict[str, Any] = {
        "sites": task.sites, "embedding": task.embedding, "ignore_label": task.ignore_label
    }  # fmt: skip
    if task.loss != "cross_entropy" and isinstance(task.loss, str):
        of_roles["loss"] = task.loss  # a method of your own need not have the setting
    layers = [
        (f"task {task.name}", of_roles),
        (f'preset "{preset}" of {method.name}', method.presets.get(preset, {})),
        (f'preset "{preset}" of {task.name}', of_task),
        (f'preset "{preset}" of {task.name} for {method.name}', by_method.get(method.name, {})),
        *([] if recipe is None else [(f'recipe "{recipe}"', _of_recipe(recipe, method))]),
        (where, overrides),
    ]
    parameters = {**of_model, **of_method}
    schema = settings_schema(method.name, parameters, LoopSettings)
    merged, unions = group_defaults(parameters), group_unions(parameters)
    for source, layer in layers:
        values = migrate_layer(method, plain(layer), source)
        if "augment" in values:
            values["augment"] = parse_augment(values["augment"])
        merged = merge(merged, values, unions)
        validated = validate(schema, merged, source, partial=True)
    validated = validate(schema, merged, where)
    try:
        values = {name: build(getattr(validated, name)) for name in validated.model_fields_set}
    except UnseenError as error:  # a group checks what a type cannot say
        raise UnseenError(f"{where}: {error}") from error
    loop = LoopSettings(**{n: v for n, v in values.items() if n in LoopSettings.model_fields})
    with naming(where):
        Views(loop.augment, loop.views)
    own = {} if isinstance(task.loss, str) else {"loss": task.loss}  # no text can say a function
    return Resolved(
        loop,
        {**{name: values[name] for name in of_method if name in values}, **own},
        {name: values.get(name, p.default) for name, p in of_model.items()},
    )


def _of_recipe(name: str, method: type[Method]) -> dict[str, Any]:
    """Return what a recipe says about this method and its loop."""
    known = {*LoopSettings.model_fields, *method.settings_of()}
    return {n: v for n, v in recipe_named(name).of_method(method.name).items() if n in known}


def migrate_layer(method: type[Method], layer: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Replace deprecated names in one layer of settings, with a warning."""
    migrate = getattr(method, "migrate_settings", dict)

    def convert(layer: Mapping[str, Any]) -> dict[str, Any]:
        renamed = migrate_loop(layer)
        loop = {n: renamed.pop(n) for n in list(renamed) if n in LoopSettings.model_fields}
        return {**loop, **migrate(renamed)}

    converted = convert(layer)
    if old := {name: value for name, value in layer.items() if name not in converted}:
        hints = ", ".join(f"{n} (now {_dotted(convert({n: v}))})" for n, v in old.items())
        warnings.warn(
            f"{where}: deprecated settings, to be removed in 0.3: {hints}",
            DeprecationWarning,
            stacklevel=3,
        )
    return converted


def _dotted(settings: Mapping[str, Any]) -> str:
    """Return the names of nested settings, such as noise.scale."""
    return ", ".join(
        f"{name}.{_dotted(value)}" if isinstance(value, Mapping) and value else name
        for name, value in settings.items()
    )
