"""`unseen data`: list, check and fetch the real data sets; inspect one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cyclopts import App

from unseen.cli.options import Json, emit, say
from unseen.cli.train_data import Reading, ReadingOptions
from unseen.data import catalog
from unseen.data.location import data_root
from unseen.data.own_files.problems import problem_lines
from unseen.experiments.inspect_data import inspect_data
from unseen.report.tables import show

data_app = App(name="data", help="List, check and fetch the real data sets; inspect your own.")


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


@data_app.command(name="inspect")
def inspect_(
    data: Path, *, sheet: Path | None = None, reading: Reading = None, json_: Json = False
) -> None:
    """Describe your own data: counts by domain, class and split, sizes, and what is wrong.

    Exits with 2 if `unseen train --data` would refuse them.

    Parameters
    ----------
    data
        Manifest (.csv, .tsv, .jsonl, .parquet) or folder (domain/class/file or class/file).
    sheet
        PNG file for a contact sheet: some samples of each class and domain.
    """
    options = (reading or ReadingOptions()).options(data)
    result = inspect_data(options, sheet)
    if not emit(result, json_):
        _show_data(result)
    if result["problems"]:
        say(f"{data} cannot be used as it is:")
        for kind, found in result["problems"].items():
            for line in problem_lines(kind, found["count"], found["examples"]):
                print(line, file=sys.stderr)
        sys.exit(2)


def _show_data(result: dict[str, Any]) -> None:
    """Print tables of domains and classes."""
    splits = sorted({s for d in result["domains"].values() for s in d["splits"]})
    rows = [
        [
            f"{name} (source)" if name == result["source"] else name,
            d["n"],
            *(d["splits"].get(s, 0) for s in splits),
            d["unlabelled"],
        ]
        for name, d in result["domains"].items()
    ]
    title = f"{result['data']}: {result['samples']} samples, {result['kind']}"
    show(f"{title}; split: {result['split']}", ["domain", "n", *splits, "no label"], rows)
    if any("classes" in d for d in result["domains"].values()):
        names = dict.fromkeys(c for d in result["domains"].values() for c in d.get("classes", {}))
        cells = [
            [name, *(d.get("classes", {}).get(name, 0) for d in result["domains"].values())]
            for name in names
        ]
        show("samples of each class", ["class", *result["domains"]], cells)
    if sizes := result["sizes"].get("most_common"):
        show("sizes, the most common first", ["size", "files"], [list(p) for p in sizes.items()])
    if seconds := result["sizes"].get("seconds"):
        show("seconds", ["", ""], [[k, f"{v:.2f}"] for k, v in seconds.items()])
    if result["ignored"]["count"]:
        examples = ", ".join(result["ignored"]["examples"][:3])
        print(f"not read: {result['ignored']['count']}, e.g. {examples}")
    if result.get("sheet"):
        print(f"contact sheet: {result['sheet']}")


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
