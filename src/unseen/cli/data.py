"""`unseen data`: list, check and fetch the real data sets."""

from __future__ import annotations

import sys
from typing import Any

from cyclopts import App

from unseen.cli.options import Json, emit, say
from unseen.data import catalog
from unseen.data.location import data_root
from unseen.report.tables import show

data_app = App(name="data", help="List, check and fetch the real data sets.")


@data_app.command(name="list")
def list_(*, json_: Json = False) -> None:
    """List the data sets with their publishers and licences."""
    rows = catalog.data_sets()
    if emit({"root": str(data_root()), "data": rows}, json_):
        return
    cells = [
        [
            f"{row['name']} {row['domain']} {row['split']}",
            row["samples"],
            format_size(row["bytes"]),
            row["fetch"],
            row["licence"],
            row["page"],
        ]
        for row in rows
    ]
    header = ["data", "samples", "size", "fetch", "licence", "publisher"]
    show(f"data under {data_root()}", header, cells)


@data_app.command
def check(name: str, *, json_: Json = False) -> None:
    """Read the files of a data set and report what is missing or broken.

    Exits with 1 if the task cannot run.

    Parameters
    ----------
    name
        A name from `unseen data list`, or a task.
    """
    rows = catalog.check(name)
    complete = bool(catalog.usable_variants(name, rows))
    finish(name, rows, complete and all(row["state"] != "broken" for row in rows), json_)


@data_app.command
def fetch(name: str, *, json_: Json = False) -> None:
    """Download the missing or broken files of a data set.

    An interrupted download continues where it stopped. Exits with 1 if a download failed.

    Parameters
    ----------
    name
        A name from `unseen data list`, or a task.
    """
    rows = catalog.fetch(name)
    finish(name, rows, all(row["state"] != "failed" for row in rows), json_)


def finish(name: str, rows: list[dict[str, Any]], ok: bool, json_: bool) -> None:
    """Print the rows; exit with 1 unless `ok`."""
    if not emit({"name": name, "root": str(data_root()), "ok": ok, "files": rows}, json_):
        cells = [
            [f"{r['domain']} {r['split']}", _state(r), f"{r['n']} of {r['published']}"]
            for r in rows
        ]
        show(f"{name} under {data_root()}", ["data", "state", "samples"], cells)
        problems = [
            f"{r['domain']}: {r['problem']}"
            for r in rows
            if r["problem"] and (r["needed"] or r["state"] in ("broken", "failed", "by hand"))
        ]
        for problem in dict.fromkeys(problems):
            say(problem)
    if not ok:
        sys.exit(1)


def _state(row: dict[str, Any]) -> str:
    optional = row["state"] == "missing" and not row["needed"]
    return "missing, optional" if optional else row["state"]


def format_size(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f} MB"
