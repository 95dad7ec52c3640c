"""`unseen recipes`."""

from __future__ import annotations

from typing import Any

from unseen.cli.options import Json, emit
from unseen.report.settings import flatten, format_value
from unseen.report.tables import show
from unseen.schema.augment import format_augment, views_of
from unseen.training.recipes import RECIPES, recipe_named


def recipes(name: str | None = None, *, json_: Json = False) -> None:
    """List the recipes and what is in each: settings for a kind of data.

    unseen train digits --recipe image --out runs/mine

    Parameters
    ----------
    name
        A recipe.
    """
    chosen = RECIPES.values() if name is None else [recipe_named(name)]
    result: list[dict[str, Any]] = [
        {
            "name": recipe.name,
            "summary": recipe.summary,
            "method": recipe.method,
            "settings": dict(recipe.settings),
        }
        for recipe in chosen
    ]
    if emit({"recipes": result}, json_):
        return
    rows: list[list[object]] = []
    for recipe in result:
        rows += [[recipe["name"], "data", recipe["summary"]], ["", "method", recipe["method"]]]
        rows += [["", *row] for row in _rows(recipe["settings"])]
    show(
        "recipes; settings that you give win over those of a recipe",
        ["recipe", "setting", "value"],
        rows,
    )


def _rows(settings: dict[str, Any]) -> list[list[str]]:
    """Return names and values; augmentations have one row for each view."""
    views = views_of(settings.get("augment")) or []
    shown = [
        [f"augment, view {n}", format_augment(view) or "the batch itself"]
        for n, view in enumerate(views, 1)
    ]
    rest = {n: v for n, v in settings.items() if not (views and n == "augment")}
    return shown + [[n, format_value(v)] for n, v in flatten(rest).items()]
