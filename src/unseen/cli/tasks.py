"""`unseen tasks`."""

from __future__ import annotations

from typing import Any

from unseen.cli.options import Json, dotted, emit
from unseen.report.tables import show
from unseen.schema import plain
from unseen.tasks import TASKS, task_named, variants_of
from unseen.training.config import model_settings


def tasks(name: str | None = None, *, json_: Json = False) -> None:
    """List the tasks, or show one in full.

    Parameters
    ----------
    name
        A task, or a variant of it such as amazon_reviews/dvd.
    """
    result = [_describe(word) for word in (TASKS if name is None else [name])]
    if emit({"tasks": result}, json_):
        return
    if name is None:
        show(
            "tasks; `unseen tasks NAME` or `unseen tasks NAME/VARIANT` shows one in full",
            ["name", "what", "variants"],
            [[t["name"], t["summary"], ", ".join(t["variants"])] for t in result],
        )
        return
    (task,) = result
    show(name, ["", ""], [[key, _one_line(v)] for key, v in task.items() if key != "presets"])
    for preset, settings in task["presets"].items():
        rows = [[k, _one_line(v)] for k, v in settings.items()]
        show(f"preset {preset}; other settings have their defaults", ["", ""], rows)


def _describe(word: str) -> dict[str, Any]:
    task, name = task_named(word), word.partition("/")[0]
    return {
        "name": word,
        "summary": task.summary,
        "variants": list(variants_of(name)) if name in TASKS else [],
        "source": task.source.name,
        "unseen": [d.name for d in task.targets],
        "classes": task.classes,
        "metric": task.metric,
        "presets": {preset: plain(settings) for preset, settings in task.presets.items()},
        "sites": list(task.sites),
        "embedding": task.embedding,
        "model_settings": {k: plain(p.default) for k, p in model_settings(task).items()},
    }


def _one_line(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_one_line(item)}" for name, item in dotted(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else value
