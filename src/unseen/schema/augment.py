"""The setting `augment`, as text and as a value. Needs no torch.

Text: "affine:strength=0.5,randconv". A comma separates augmentations, or settings of the one before
them: "affine:strength=0.5,shear=0,randconv". A slash separates views: "/affine,randconv" has a
clean view and an augmented one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.errors import UnseenError
from unseen.reading import NotJson, parse_json

Step = str | dict[str, Any]  # an augmentation by name, or {"name": ..., settings}
View = list[Step]


def parse_augment(value: Any) -> Any:
    """Return the value with names for text, and tables for names with settings.

    Values that have been parsed pass through; what has no meaning is left for the validation.
    """
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        text = ",".join(value)  # the command line splits at commas
        return _parse_text(text) if _has_syntax(text) else list(value)
    if isinstance(value, str):
        return _parse_text(value) if _has_syntax(value) or "," in value else value
    if isinstance(value, Mapping):  # in a list: tables of settings are merged field by field
        return [_parse_step(value)]
    return [_parse_item(item) for item in value] if isinstance(value, list | tuple) else value


def views_of(value: Any) -> list[View] | None:
    """Return the augmentations of each view, if the value has them view by view."""
    if isinstance(value, list) and any(isinstance(item, list) for item in value):
        return [item if isinstance(item, list) else [item] for item in value]
    return None


def steps_of(value: Any) -> View:
    """Return a value that does not distinguish views as a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


def format_augment(value: Any) -> str:
    """Return the text of a value."""
    if (views := views_of(value)) is not None:
        return "/".join(format_augment(view) for view in views)
    return ",".join(_format_step(step) for step in steps_of(value))


def _has_syntax(text: str) -> bool:
    return ":" in text or "/" in text


def _parse_text(text: str) -> list[Any]:
    views = [_parse_view(part) for part in text.split("/")]
    return views if len(views) > 1 else views[0]


def _parse_view(text: str) -> View:
    steps: list[tuple[str, dict[str, Any]]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, first = part.partition(":")
        if colon or "=" not in part:
            steps.append((name.strip(), {}))
            part = first
        if not part or not (colon or "=" in part):
            continue
        for setting in part.split(":"):
            key, equals, word = (piece.strip() for piece in setting.partition("="))
            if not steps or not key or not equals:
                raise UnseenError(
                    f'augment: "{setting}" is no setting; write NAME:setting=value, such as '
                    "affine:strength=0.5"
                )
            steps[-1][1][key] = _parse_word(word)
    return [_parse_step({"name": name, **settings}) for name, settings in steps if name != "none"]


def _parse_word(text: str) -> Any:
    try:
        return parse_json(text, "augment")
    except NotJson:
        return {"none": None}.get(text, text)


def _parse_item(item: Any) -> Any:
    if isinstance(item, str):
        parsed = parse_augment(item)
        return parsed[0] if isinstance(parsed, list) and len(parsed) == 1 else parsed
    if isinstance(item, list | tuple):
        parsed = parse_augment(item)
        return parsed if isinstance(parsed, list) else [parsed]
    return _parse_step(item) if isinstance(item, Mapping) else item


def _parse_step(step: Mapping[str, Any]) -> Any:
    return step["name"] if set(step) == {"name"} else dict(step)


def _format_step(step: Any) -> str:
    if not isinstance(step, Mapping):
        return str(step)
    settings = (f"{name}={value}" for name, value in step.items() if name != "name")
    return ":".join([str(step.get("name")), *settings])
