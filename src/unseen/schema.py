"""Hyperparameters of a class, read from the signature of its constructor."""

from __future__ import annotations

import inspect
import typing


def hyperparameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the keyword-only arguments of `cls.__init__`.

    Parents are included where a constructor takes `**common`.
    """
    found: dict[str, inspect.Parameter] = {}
    for init in (vars(kind)["__init__"] for kind in cls.__mro__ if "__init__" in vars(kind)):
        hints = typing.get_type_hints(init)
        parameters = inspect.signature(init).parameters.values()
        own = {
            p.name: p.replace(annotation=hints[p.name])
            for p in parameters
            if p.kind is p.KEYWORD_ONLY
        }
        found = {**{name: p for name, p in own.items() if name not in found}, **found}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found
