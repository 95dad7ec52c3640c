"""What real data there is to have, what of it is here, and getting the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen.data.location import MissingData, data_root
from unseen.data.publishers import DATA_SETS, DataSet, Part, data_set
from unseen.errors import UnseenError

Row = dict[str, Any]


def data_sets() -> list[Row]:
    """One row for each published split of each data set."""
    return [
        {
            "name": data.name, "domain": part.domain, "split": part.split, "samples": part.samples, "needed": part.needed,
            "bytes": sum(f.size for f in part.files if f.size) if all(f.size for f in part.files) and part.files else None,
            "fetch": "by hand" if part.by_hand else "yes", "licence": part.licence, "page": part.page,
        }
        for data in DATA_SETS.values()
        for part in data.parts
    ]  # fmt: skip


def check(name: str, root: Path | None = None) -> list[Row]:
    """Read every split that is there: `state` is ok, missing or broken, `problem` says what is wrong."""
    data = data_set(name)
    folder = (data_root() if root is None else root) / data.name
    rows = [_checked(data, part, folder) for part in data.parts]
    if enough(name, rows):  # for some variant: then what another one would need can be done without
        return [{**row, "needed": row["needed"] and row["state"] != "missing"} for row in rows]
    return rows


def enough(name: str, rows: Sequence[Row]) -> list[str]:
    """What can be run with the splits that are there and whole."""
    return data_set(name).enough_for(
        [f"{row['domain']} {row['split']}" for row in rows if row["state"] == "ok"]
    )


def fetch(name: str, root: Path | None = None) -> list[Row]:
    """Download every split that is missing or broken: `state` is there, fetched, by hand or failed.

    A split that can be read is left alone, whether or not its bytes are the publisher's.
    """
    data = data_set(name)
    folder = (data_root() if root is None else root) / data.name
    return [_fetched(data, part, folder) for part in data.parts]


def _checked(data: DataSet, part: Part, folder: Path) -> Row:
    row = {
        "domain": part.domain, "split": part.split, "file": str(folder / data.main_file(part)), "needed": part.needed,
        "state": "ok", "n": 0, "published": part.samples, "problem": "",
    }  # fmt: skip
    try:
        return {**row, "n": data.count(part, folder)}
    except MissingData as error:
        return {
            **row,
            "state": "missing",
            "problem": part.by_hand.format(folder=folder) or str(error),
        }
    except (UnseenError, OSError) as error:
        return {**row, "state": "broken", "problem": str(error)}


def _fetched(data: DataSet, part: Part, folder: Path) -> Row:
    from unseen.data import download  # pooch and requests: only where something is fetched

    row = _checked(data, part, folder)
    if row["state"] == "ok":
        return {**row, "state": "there"}
    if part.by_hand:
        return {**row, "state": "by hand"}
    unrecorded = [
        f for f in part.files if f.sha256 is None and download.recorded(folder / f.name) is None
    ]
    try:
        for file in unrecorded:
            _rename(
                folder / file.name, _aside(folder / file.name)
            )  # without a checksum pooch would take it for good
        for file in part.files:
            download.download(file, folder)
        n = data.count(part, folder)
    except (UnseenError, OSError) as error:
        for (
            file
        ) in unrecorded:  # what cannot be read was no first download to measure later ones by
            (folder / file.name).unlink(missing_ok=True)
            _rename(_aside(folder / file.name), folder / file.name)  # the user's own, broken or not
        return {**row, "state": "failed", "problem": str(error)}
    for file in unrecorded:
        download.record(folder / file.name)
        _aside(folder / file.name).unlink(missing_ok=True)
    return {**row, "state": "fetched", "n": n, "problem": ""}


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".broken")


def _rename(path: Path, to: Path) -> None:
    if path.exists():
        path.replace(to)
