"""What there is: tasks, methods."""

from __future__ import annotations

from typing import Any

from cyclopts import App

from unseen.cli.options import Json, emit
from unseen.methods import METHODS, method_named
from unseen.report.tables import show
from unseen.settings import LOOP
from unseen.tasks import TASKS


def attach(app: App) -> None:
    app.command(tasks)
    app.command(methods)


def tasks(*, json_: Json = False) -> None:
    """The tasks there are."""
    made = [make() for make in TASKS.values()]
    result = [
        {
            "name": t.name, "summary": t.summary, "source": t.source.name, "unseen": [d.name for d in t.targets],
            "presets": list(t.presets), "sites": list(t.sites), "embedding": t.embedding,
        }
        for t in made
    ]  # fmt: skip
    if not emit({"tasks": result}, json_):
        rows = [[t["name"], t["source"], ", ".join(t["unseen"]), ", ".join(t["presets"])] for t in result]
        show("tasks", ["name", "source", "unseen", "presets"], rows)


def methods(name: str | None = None, *, json_: Json = False) -> None:
    """The methods there are; with a name, that one's settings and defaults.

    Parameters
    ----------
    name
        One method, in full.
    """
    chosen = METHODS.values() if name is None else [method_named(name)]
    result: list[dict[str, Any]] = [
        {
            "name": m.name, "summary": m.summary, "paper": m.paper,
            "settings": {name: plain(p.default) for name, p in m.settings_of().items()},
        }
        for m in chosen
    ]  # fmt: skip
    if emit({"methods": result, "loop": LOOP}, json_):
        return
    if name is None:
        show("methods; `unseen methods NAME` lists one's settings", ["name", "idea"], [[m["name"], m["summary"]] for m in result])
    for method in result if name is not None else []:
        rows = [[setting, default] for setting, default in method["settings"].items()]
        show(f"{method['name']}: {method['summary']}\n{method['paper']}", ["setting", "default"], rows)
    show("settings of the training loop, for every method", ["setting", "default"], [list(item) for item in LOOP.items()])


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
