"""`unseen adaptations`."""

from __future__ import annotations

from typing import Any

from unseen.adaptation import ADAPTATIONS, adaptation_named
from unseen.cli.options import Json, emit
from unseen.report.tables import show


def adaptations(name: str | None = None, *, json_: Json = False) -> None:
    """List the adaptation methods, or the settings of one of them.

    Parameters
    ----------
    name
        An adaptation method.
    """
    chosen = ADAPTATIONS.values() if name is None else [adaptation_named(name)]
    result: list[dict[str, Any]] = [
        {
            "name": kind.name,
            "summary": kind.summary,
            "paper": kind.paper,
            "needs": kind.needs,
            "settings": {setting: p.default for setting, p in kind.settings_of().items()},
        }
        for kind in chosen
    ]
    if emit({"adaptations": result}, json_):
        return
    if name is None:
        show(
            "adaptation methods; `unseen adaptations NAME` lists the settings of one",
            ["name", "learns from", "idea"],
            [[kind["name"], kind["needs"], kind["summary"]] for kind in result],
        )
        return
    (kind,) = result
    show(
        f"{name}: {kind['summary']}; learns from {kind['needs']}\n{kind['paper']}",
        ["setting", "default"],
        [[setting, default] for setting, default in kind["settings"].items()],
    )
