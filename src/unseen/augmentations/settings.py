"""Settings of augmentations: the arguments of a function, checked by its annotations."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import AllowInfNan, BaseModel, Strict
from torch import Tensor

from unseen.errors import UnseenError
from unseen.schema import settings_schema, validate

Transform = Callable[..., Tensor]

Positive = Annotated[float, Strict(), AllowInfNan(False), Gt(0)]
NotNegative = Annotated[float, Strict(), AllowInfNan(False), Ge(0)]
Probability = Annotated[float, Strict(), Ge(0), Le(1)]
Count = Annotated[int, Strict(), Ge(1)]
NotNegativeInt = Annotated[int, Strict(), Ge(0)]


def augmentation(function: Transform) -> Transform:
    """Check the settings of every call; `function` takes inputs, then settings with defaults."""

    @functools.wraps(function)
    def checked(x: Any, *positional: Any, **settings: Any) -> Tensor:
        names = list(settings_of(checked))
        if len(positional) > len(names):
            raise UnseenError(f"{function.__name__} has {len(names)} settings: {', '.join(names)}")
        given = {**dict(zip(names, positional, strict=False)), **settings}
        check_settings(checked, given, function.__name__)
        return function(x, **given)

    return checked


@functools.cache
def settings_of(function: Transform) -> dict[str, inspect.Parameter]:
    """Return the settings of an augmentation by name."""
    written = inspect.unwrap(function)
    hints = typing.get_type_hints(written, include_extras=True)
    _, *parameters = inspect.signature(written).parameters.values()
    return {p.name: p.replace(annotation=hints[p.name]) for p in parameters}


@functools.cache
def _schema(function: Transform) -> type[BaseModel]:
    return settings_schema(function.__name__, settings_of(function))


def check_settings(function: Transform, settings: dict[str, Any], where: str) -> None:
    """Raise an error that names every setting that is unknown or has a wrong value."""
    if settings:
        validate(_schema(function), settings, where)
