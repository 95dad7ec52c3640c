"""`unseen data`: what real data there is, whether what is here can be read, and fetching the rest."""

from __future__ import annotations

import sys
from typing import Any

from cyclopts import App

from unseen.cli.options import Json, emit, say
from unseen.data import catalog as stock
from unseen.data.location import data_root
from unseen.report.tables import show

data_app = App(
    name="data",
    help="Real data: what there is, whether what is here can be read, fetching the rest.",
)


def attach(app: App) -> None:
    app.command(data_app)


@data_app.command(name="list")
def list_(*, json_: Json = False) -> None:
    """The data sets there are, who publishes them, and under what licence."""
    rows = stock.data_sets()
    if emit({"root": str(data_root()), "data": rows}, json_):
        return
    cells = [
        [
            f"{row['name']} {row['domain']} {row['split']}",
            row["samples"],
            size(row["bytes"]),
            row["fetch"],
            row["licence"],
            row["page"],
        ]
        for row in rows
    ]
    show(
        f"data under {data_root()}",
        ["data", "samples", "size", "fetch", "licence", "publisher"],
        cells,
    )


@data_app.command
def check(name: str, *, json_: Json = False) -> None:
    """Read a data set's files and say what is missing or broken; exit code 1 if the task cannot run.

    Parameters
    ----------
    name
        A name from `unseen data list`, or a task's.
    """
    rows = stock.check(name)
    finish(
        name,
        rows,
        bool(stock.enough(name, rows)) and all(row["state"] != "broken" for row in rows),
        json_,
    )


@data_app.command
def fetch(name: str, *, json_: Json = False) -> None:
    """Download what is missing or broken of a data set; exit code 1 if a download failed.

    A download that was cut goes on where it stopped.

    Parameters
    ----------
    name
        A name from `unseen data list`, or a task's.
    """
    rows = stock.fetch(name)
    finish(name, rows, all(row["state"] != "failed" for row in rows), json_)


def finish(name: str, rows: list[dict[str, Any]], good: bool, json_: bool) -> None:
    """Print the rows and, where something is wrong, end with exit code 1."""
    if not emit({"name": name, "root": str(data_root()), "ok": good, "files": rows}, json_):
        cells = [
            [f"{r['domain']} {r['split']}", _state(r), f"{r['n']} of {r['published']}"]
            for r in rows
        ]
        show(f"{name} under {data_root()}", ["data", "state", "samples"], cells)
        told = [
            r
            for r in rows
            if r["problem"] and (r["needed"] or r["state"] in ("broken", "failed", "by hand"))
        ]
        for problem in dict.fromkeys(f"{r['domain']}: {r['problem']}" for r in told):
            say(problem)
    if not good:
        sys.exit(1)


def _state(row: dict[str, Any]) -> str:
    return (
        "missing, can be done without"
        if row["state"] == "missing" and not row["needed"]
        else row["state"]
    )


def size(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f} MB"
