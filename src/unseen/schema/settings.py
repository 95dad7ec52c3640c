"""Settings: read from constructor signatures, validated with pydantic, merged in layers.

A setting is a keyword-only argument of a constructor. A group of settings is a dataclass; in a
union of groups, the field `kind` selects one. The command line, grid files and config.json all pass
through `validate`: they accept the same values and report the same errors.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    Field,
    Strict,
    create_model,
)

from unseen.errors import UnseenError
from unseen.reading import NotJson, check_values, parse_json
from unseen.schema.validation import Section, group_kind, shorten, validate

FUNCTION = "function"  # key under which config.json names one


def hyperparameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the keyword-only arguments of `cls.__init__`.

    Parents are included where a constructor takes `**common`.
    """
    result: dict[str, inspect.Parameter] = {}
    for init in (vars(kind)["__init__"] for kind in cls.__mro__ if "__init__" in vars(kind)):
        hints = typing.get_type_hints(init)
        parameters = inspect.signature(init).parameters.values()
        own = {
            p.name: p.replace(annotation=hints[p.name])
            for p in parameters
            if p.kind is p.KEYWORD_ONLY
        }
        result = {**{name: p for name, p in own.items() if name not in result}, **result}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return result


def refuse_unknown(owner: Any, unknown: Mapping[str, Any]) -> None:
    """Raise an error that lists the hyperparameters of a method if it is given others."""
    if unknown:
        known = ", ".join(hyperparameters(type(owner)))
        raise UnseenError(f"{owner.name} has no setting {', '.join(unknown)}; it has: {known}")


# ---- from signatures to pydantic models


def settings_schema(
    name: str, parameters: Mapping[str, inspect.Parameter], base: type[BaseModel] = Section
) -> type[BaseModel]:
    """Return a pydantic model with one field per parameter, in addition to the fields of `base`."""
    fields: dict[str, Any] = {
        p.name: (strict_type(p.annotation), ... if p.default is p.empty else p.default)
        for p in parameters.values()
    }
    return create_model(name, __base__=base, **fields)


def strict_type(annotation: Any) -> Any:
    """Return the annotation with strict leaves: "3" and True are not numbers, 2.5 is not an int."""
    if annotation in (int, bool):
        return Annotated[annotation, Strict()]
    if annotation is float:
        return Annotated[float, Strict(), AllowInfNan(False)]
    if annotation is str:
        return Annotated[str, BeforeValidator(_layer_name)]
    if dataclasses.is_dataclass(annotation):
        return _group_schema(typing.cast(type, annotation))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal and len(arguments) > 1:  # a tag, which pydantic reads, has one choice
        return Annotated[annotation, BeforeValidator(_choice_filter(arguments))]
    if origin in (Union, types.UnionType):
        # A function can be given in Python only.
        arguments = tuple(a for a in arguments if typing.get_origin(a) is not Callable)
        groups: list[Any] = [a for a in arguments if dataclasses.is_dataclass(a)]
        others = [strict_type(a) for a in arguments if a not in groups]
        if len(groups) < 2:
            return Union[tuple([*map(strict_type, groups), *others])]  # noqa: UP007
        schemas: Any = Union[tuple(_group_schema(group) for group in groups)]  # noqa: UP007
        tagged: Any = Annotated[
            schemas,
            Field(discriminator="kind"),
            BeforeValidator(lambda value: {"kind": value} if isinstance(value, str) else value),
        ]
        return Union[tuple([tagged, *others])]  # noqa: UP007
    if origin in (list, tuple):
        items = tuple(a if a is Ellipsis else strict_type(a) for a in arguments)
        return origin[items]
    return annotation


@functools.cache
def _group_schema(group: Any) -> type[BaseModel]:
    """Return the schema of a dataclass; `build` turns its instances back into the dataclass."""
    hints = typing.get_type_hints(group)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(group):
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = Field(default_factory=field.default_factory)
        else:
            default = ...
        fields[field.name] = (strict_type(hints[field.name]), default)
    schema = create_model(group.__name__, __base__=Section, **fields)
    schema.__group__ = group  # type: ignore[attr-defined]
    return schema


def _layer_name(value: Any) -> Any:
    # Layers of nn.Sequential are called 0, 1, ..., which the command line reads as numbers.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _choice_filter(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value is None and "none" in choices:  # the command line reads `none` as None
            return "none"
        if isinstance(value, bool) and not any(value is choice for choice in choices):
            return str(value)  # True equals 1, which may be one of the choices
        return value

    return convert


def build(value: Any) -> Any:
    """Turn a validated value into constructor arguments: groups become their dataclass."""
    if isinstance(value, BaseModel) and (group := getattr(type(value), "__group__", None)):
        chosen = [f.name for f in dataclasses.fields(group) if f.init]
        chosen = [name for name in chosen if name in value.model_fields_set]
        return group(**{name: build(getattr(value, name)) for name in chosen})
    if isinstance(value, list | tuple):
        return type(value)(build(item) for item in value)
    return value


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: groups are mappings, tuples are lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if callable(value):  # it is named, never stored
        named = value if hasattr(value, "__qualname__") else type(value)
        return {FUNCTION: f"{named.__module__}.{named.__qualname__}"}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def saved_values(
    settings: Mapping[str, Any], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return saved settings but those that are given; functions, which are not saved, must be."""
    result = {name: value for name, value in settings.items() if name not in given}
    for name, value in result.items():
        if isinstance(value, Mapping) and set(value) == {FUNCTION}:
            raise UnseenError(
                f"{where}: {name} was the function {value[FUNCTION]}, which is not saved: "
                f"give it again, unseen.load(folder, model, {name}=...)"
            )
    return result


def construct_settings(
    parameters: Mapping[str, inspect.Parameter], data: Any, where: str, owner: str
) -> dict[str, Any]:
    """Validate a mapping of settings and return the constructor's keyword arguments."""
    schema = settings_schema(owner, parameters)
    merged = merge(group_defaults(parameters), plain(data), group_unions(parameters))
    validated = validate(schema, merged, where)
    try:
        chosen = [name for name in parameters if name in validated.model_fields_set]
        return {name: build(getattr(validated, name)) for name in chosen}
    except UnseenError as error:  # a group checks what a type cannot say
        raise UnseenError(f"{where}: {error}") from error


def group_defaults(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the default of each group: a setting given for one field keeps the others."""
    return {
        name: plain(p.default)
        for name, p in parameters.items()
        if dataclasses.is_dataclass(p.default)
    }


class GroupUnion(NamedTuple):
    """A union of groups: the kind of its default, and the fields of every kind."""

    default: str | None
    fields: dict[str | None, list[str]]


def group_unions(parameters: Mapping[str, inspect.Parameter]) -> dict[str, GroupUnion]:
    """Return the settings that are a union of groups."""
    unions = {}
    for name, p in parameters.items():
        groups = [a for a in typing.get_args(p.annotation) if dataclasses.is_dataclass(a)]
        if len(groups) > 1:
            fields = {group_kind(g): [f.name for f in dataclasses.fields(g)] for g in groups}
            unions[name] = GroupUnion(group_kind(type(p.default)), fields)
    return unions


# ---- from text and files to values


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """Read `key=value` words; `a.b=1` addresses field b of group a.

    A value is JSON where it reads as such, else text; `x,y` is a list; `none` is None.
    """
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        keys = name.split(".")
        if not equals or not all(keys):
            raise UnseenError(f'a setting is written key=value, not "{word}"')
        where = f"--set {shorten(name, 80)}"
        value = _parse_value(text, where)
        for key in reversed(keys):
            value = {key: value}
        check_values(value, where)
        settings = merge(settings, value)
    return settings


def _parse_value(text: str, where: str) -> Any:
    try:
        return parse_json(text, where)
    except NotJson:
        pass
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    return text.split(",") if "," in text else text


def merge(below: Any, above: Any, unions: Mapping[str, GroupUnion] | None = None) -> Any:
    """Merge two layers of settings, field by field; `above` wins.

    A name given for a group is its kind. A group of another kind keeps the fields that both have.
    """
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    result = dict(below)
    for name, new in above.items():
        old, union = result.get(name), (unions or {}).get(name)
        if isinstance(new, str) and (union or isinstance(old, Mapping)):
            new = {"kind": new}
        elif isinstance(new, Mapping) and isinstance(old, str):
            old = {"kind": old}
        if union and isinstance(new, Mapping):
            old = old if isinstance(old, Mapping) else {"kind": union.default}
            new = {"kind": old.get("kind"), **new}
            kind = new["kind"]  # of any type, until the result is validated
            known = union.fields.get(kind, ()) if isinstance(kind, str | None) else ()
            old = {field: value for field, value in old.items() if field in known}
        result[name] = merge(old, new)
    return result
