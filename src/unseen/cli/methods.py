"""`unseen methods`."""

from __future__ import annotations

import dataclasses
from typing import Any

from unseen.cli.options import Json, emit
from unseen.methods import METHODS, method_named
from unseen.report.tables import show
from unseen.training.config import LoopSettings


def methods(name: str | None = None, *, json_: Json = False) -> None:
    """List the methods, or the settings of one of them.

    Parameters
    ----------
    name
        A method.
    """
    chosen = METHODS.values() if name is None else [method_named(name)]
    result: list[dict[str, Any]] = [
        {
            "name": m.name,
            "summary": m.summary,
            "paper": m.paper,
            "settings": {k: _to_json(p.default) for k, p in m.settings_of().items()},
        }
        for m in chosen
    ]
    if emit({"methods": result, "loop": LoopSettings().model_dump()}, json_):
        return
    if name is None:
        show(
            "methods; `unseen methods NAME` lists the settings of one",
            ["name", "idea"],
            [[m["name"], m["summary"]] for m in result],
        )
    else:
        (method,) = result
        title = f"{method['name']}: {method['summary']}\n{method['paper']}"
        show(title, ["setting", "default"], _dotted(method["settings"]))
    rows = _dotted(LoopSettings().model_dump())
    show("settings of the training loop, for every method", ["setting", "default"], rows)


def _to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def _dotted(settings: dict[str, Any], prefix: str = "") -> list[list[Any]]:
    """Return rows of name and default; a group's fields are named as on the command line."""
    rows: list[list[Any]] = []
    for name, value in settings.items():
        if isinstance(value, dict):
            rows += _dotted(value, f"{prefix}{name}.")
        else:
            rows.append([prefix + name, value])
    return rows
