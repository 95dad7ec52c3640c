"""`unseen methods`."""

from __future__ import annotations

from typing import Any

from unseen.cli.options import Json, dotted, emit
from unseen.methods import METHODS, method_named
from unseen.report.tables import show
from unseen.schema import plain
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
            "settings": {k: plain(p.default) for k, p in m.settings_of().items()},
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
        show(title, ["setting", "default"], list(dotted(method["settings"])))
    rows = list(dotted(LoopSettings().model_dump()))
    show("settings of the training loop, for every method", ["setting", "default"], rows)
