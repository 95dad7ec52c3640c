"""Validate data against a pydantic schema; describe its problems in one plain error."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from unseen.errors import UnseenError

Model = TypeVar("Model", bound=BaseModel)

MAX_PROBLEMS = 8  # in one message


class Section(BaseModel):
    """Base of all schemas: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


def group_kind(group: Any) -> str | None:
    """Return the tag of a dataclass in a union: the only choice of its field `kind`."""
    if not dataclasses.is_dataclass(group):
        return None
    choices = typing.get_args(typing.get_type_hints(group).get("kind"))
    return choices[0] if len(choices) == 1 else None


def validate(schema: type[Model], data: Any, where: str, *, partial: bool = False) -> Model:
    """Return the data as the schema's model, or raise one UnseenError that names every problem.

    `where` names the source of the data, such as a file or --set. `partial` allows missing fields.
    """
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        problems = [e for e in error.errors() if not (partial and e["type"] == "missing")]
        if not problems:
            return schema.model_construct(**data)
        raise UnseenError(f"{where}: {_describe_problems(schema, problems)}") from None


def _describe_problems(schema: type[BaseModel], problems: list[Any]) -> str:
    """Describe pydantic's errors, one sentence per field."""
    by_field: dict[str, list[tuple[Any, type[BaseModel] | None, bool]]] = {}
    for problem in problems:
        path, parent, optional = _locate(schema, problem)
        by_field.setdefault(path, []).append((problem, parent, optional))
    sentences = []
    for path, entries in by_field.items():
        problem, parent, optional = entries[0]
        if problem["type"] == "extra_forbidden":
            known = ", ".join(parent.model_fields) if parent else ""
            sentences.append(f"unknown setting {path}; known settings: {known or 'none'}")
        elif problem["type"] == "missing":
            sentences.append(f"{path} is missing")
        else:
            phrases = dict.fromkeys(_expected(entry) for entry, _, _ in entries)
            expected = " or ".join([*phrases, *(["none"] if optional else [])])
            value = shorten(repr(problem["input"]), 200)
            sentences.append(f"{path or 'the content'} must be {expected}, not {value}")
    more = [f"and {len(sentences) - MAX_PROBLEMS} more"] if len(sentences) > MAX_PROBLEMS else []
    return "; ".join(sentences[:MAX_PROBLEMS] + more)


def shorten(text: str, length: int) -> str:
    """Return the text, cut where it is longer."""
    return text if len(text) <= length else f"{text[:length]}..."


def _locate(schema: type[BaseModel], problem: Any) -> tuple[str, type[BaseModel] | None, bool]:
    """Return the dotted name of the field, the schema that has it, and whether it may be None.

    pydantic's location also names the branches of a union, which users do not write.
    """
    path, inside, optional, mapping = "", [schema], False, None
    parent: type[BaseModel] | None = schema
    for part in problem["loc"]:
        tagged = [s for s in inside if group_kind(getattr(s, "__group__", None)) == part]
        if isinstance(part, int):
            path += f"[{part}]"
        elif mapping is not None and part != "[key]":  # a name in a table
            path, optional = f"{path}.{shorten(part, 80)}", False
            inside, mapping = _schemas_in(mapping), _values_of(mapping)
        elif owner := next((s for s in inside if part in s.model_fields), None):
            path, parent = f"{path}.{part}".lstrip("."), owner
            annotation = owner.model_fields[part].annotation
            inside, optional = _schemas_in(annotation), type(None) in typing.get_args(annotation)
            mapping = _values_of(annotation)
        elif tagged:
            inside, optional = tagged, False
        elif problem["type"] == "extra_forbidden" and part == problem["loc"][-1]:
            path, parent = f"{path}.{part}".lstrip("."), inside[0] if inside else None
    return path, parent, optional


def _values_of(annotation: Any) -> Any:
    """Return the type of a table's values, or None if the annotation is not of a table."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is not dict:
        return None
    return typing.get_args(annotation)[1]


def _schemas_in(annotation: Any) -> list[type[BaseModel]]:
    # On Python 3.10 an alias such as dict[str, Any] is an instance of type, but not a class.
    is_class = isinstance(annotation, type) and typing.get_origin(annotation) is None
    if is_class and issubclass(annotation, BaseModel):
        return [annotation]
    return [s for a in typing.get_args(annotation) for s in _schemas_in(a)]


EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a name",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table of settings",
    "model_attributes_type": "a table of settings",
    "none_required": "none",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "of length {min_length} or more",
    "string_too_short": "of length {min_length} or more",
}


def _expected(problem: Any) -> str:
    """Say what pydantic expected, to follow "must be"."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        choices: str = context["expected"]
        return "one of " + choices.replace("'", "").replace(" or ", ", ")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tags = context.get("expected_tags", "").replace("'", "")
        return f"of kind {tags}" if tags else "a table with a kind"
    if kind in EXPECTED:
        return EXPECTED[kind].format(**context)
    message: str = problem["msg"]
    return message.removeprefix("Value error, ").removeprefix("Input should be ")
