"""`unseen methods`."""

from __future__ import annotations

from typing import Any

from unseen.cli.options import Json, dotted, emit
from unseen.methods import METHODS, method_named
from unseen.methods.explanations import explain
from unseen.report.tables import show
from unseen.schema import plain
from unseen.training.config import LoopSettings

HEADER = ["setting", "default", "meaning", "tried; when to change it"]


def methods(name: str | None = None, *, json_: Json = False) -> None:
    """List the methods, or explain the settings of one of them.

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
    loop = LoopSettings().model_dump()
    explanations = {
        "settings": {n: explain(n)._asdict() for m in result for n, _ in dotted(m["settings"])},
        "loop": {n: explain(n, loop=True)._asdict() for n in loop},
    }
    if emit({"methods": result, "loop": loop, "explanations": explanations}, json_):
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
        show(title, HEADER, [[n, v, *explain(n)] for n, v in dotted(method["settings"])])
    rows = [[n, v, *explain(n, loop=True)] for n, v in loop.items()]
    show("settings of the training loop, for every method", HEADER, rows)
