"""What there is: tasks, methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cyclopts import App

from unseen.cli.options import Json, emit
from unseen.methods import METHODS, method_named
from unseen.report.tables import show
from unseen.tasks import TASKS, task_named, variants_of
from unseen.training.config import LOOP, model_settings


def attach(app: App) -> None:
    app.command(tasks)
    app.command(methods)


def tasks(name: str | None = None, *, json_: Json = False) -> None:
    """The tasks there are; with a name, that one in full.

    Parameters
    ----------
    name
        One task, or a variant of it such as amazon_reviews/dvd.
    """
    result = [_task(word) for word in (TASKS if name is None else [name])]
    if emit({"tasks": result}, json_):
        return
    if name is None:
        rows = [[t["name"], t["summary"], ", ".join(t["variants"])] for t in result]
        show(
            "tasks; `unseen tasks NAME` tells more of one, or of a variant NAME/VARIANT",
            ["name", "what", "variants"],
            rows,
        )
        return
    show(
        name,
        ["", ""],
        [[key, _line(value)] for key, value in result[0].items() if key != "presets"],
    )
    for preset, settings in result[0]["presets"].items():
        show(
            f"preset {preset}; what it does not name is as by default",
            ["", ""],
            [[k, _line(v)] for k, v in settings.items()],
        )


def _task(word: str) -> dict[str, Any]:
    task, name = task_named(word), word.partition("/")[0]
    return {
        "name": word, "summary": task.summary, "variants": list(variants_of(name)) if name in TASKS else [],
        "source": task.source.name, "unseen": [d.name for d in task.targets], "classes": task.classes, "metric": task.metric,
        "presets": {preset: _said(settings) for preset, settings in task.presets.items()},
        "sites": list(task.sites), "embedding": task.embedding,
        "model_settings": {k: plain(p.default) for k, p in model_settings(task).items()},
    }  # fmt: skip


def _said(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's settings as JSON has them; a mapping under a method's name is for that method only."""
    return {
        name: _said(value) if isinstance(value, Mapping) else plain(value)
        for name, value in settings.items()
    }


def _line(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{k}={_line(v)}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value


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
        show(
            "methods; `unseen methods NAME` lists one's settings",
            ["name", "idea"],
            [[m["name"], m["summary"]] for m in result],
        )
    for method in result if name is not None else []:
        rows = [[setting, default] for setting, default in method["settings"].items()]
        show(
            f"{method['name']}: {method['summary']}\n{method['paper']}",
            ["setting", "default"],
            rows,
        )
    show(
        "settings of the training loop, for every method",
        ["setting", "default"],
        [list(item) for item in LOOP.items()],
    )


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
