"""Catalog of published data sets: list, check and fetch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unseen.data.location import MissingData, data_root
from unseen.data.publishers import DATA_SETS, DataSet, Part, data_set
from unseen.errors import UnseenError

Row = dict[str, Any]


def data_sets() -> list[Row]:
    """Return one row per published split of each data set."""
    return [
        {
            "name": data.name,
            "domain": part.domain,
            "split": part.split,
            "samples": part.samples,
            "needed": part.needed,
            "bytes": _total_size(part),
            "fetch": "by hand" if part.by_hand else "yes",
            "licence": part.licence,
            "page": part.page,
        }
        for data in DATA_SETS.values()
        for part in data.parts
    ]


def _total_size(part: Part) -> int | None:
    sizes = [file.size for file in part.files if file.size]
    return sum(sizes) if sizes and len(sizes) == len(part.files) else None


def check(name: str, root: Path | None = None) -> list[Row]:
    """Read every split; `state` is ok, missing or broken, `problem` says what is wrong."""
    data = data_set(name)
    folder = (data_root() if root is None else root) / data.name
    rows = [_check_part(data, part, folder) for part in data.parts]
    if usable_variants(name, rows):  # then what other variants need is optional
        return [{**row, "needed": row["needed"] and row["state"] != "missing"} for row in rows]
    return rows


def usable_variants(name: str, rows: Sequence[Row]) -> list[str]:
    """Return the variants that can run with the splits whose state is ok."""
    return data_set(name).usable_variants(
        [f"{row['domain']} {row['split']}" for row in rows if row["state"] == "ok"]
    )


def fetch(name: str, root: Path | None = None) -> list[Row]:
    """Download every missing or broken split; `state` is there, fetched, by hand or failed.

    A readable split is not replaced, even if its checksum differs from the published one.
    """
    data = data_set(name)
    folder = (data_root() if root is None else root) / data.name
    return [_fetch_part(data, part, folder) for part in data.parts]


def _check_part(data: DataSet, part: Part, folder: Path) -> Row:
    row = {
        "domain": part.domain,
        "split": part.split,
        "file": str(folder / data.main_file(part)),
        "needed": part.needed,
        "state": "ok",
        "n": 0,
        "published": part.samples,
        "problem": "",
    }
    try:
        return {**row, "n": data.count(part, folder)}
    except MissingData as error:
        advice = part.by_hand.format(folder=folder) or str(error)
        return {**row, "state": "missing", "problem": advice}
    except (UnseenError, OSError) as error:
        return {**row, "state": "broken", "problem": str(error)}


def _fetch_part(data: DataSet, part: Part, folder: Path) -> Row:
    from unseen.data import download  # imports pooch and requests

    row = _check_part(data, part, folder)
    if row["state"] == "ok":
        return {**row, "state": "there"}
    if part.by_hand:
        return {**row, "state": "by hand"}
    unverified = [
        f
        for f in part.files
        if f.sha256 is None and download.recorded_checksum(folder / f.name) is None
    ]
    try:
        for file in unverified:  # without a checksum pooch would accept an existing file
            _rename(folder / file.name, _backup(folder / file.name))
        for file in part.files:
            download.download(file, folder)
        n = data.count(part, folder)
    except (UnseenError, OSError) as error:
        for file in unverified:  # restore the user's file
            (folder / file.name).unlink(missing_ok=True)
            _rename(_backup(folder / file.name), folder / file.name)
        return {**row, "state": "failed", "problem": str(error)}
    for file in unverified:
        download.record_checksum(folder / file.name)
        _backup(folder / file.name).unlink(missing_ok=True)
    return {**row, "state": "fetched", "n": n, "problem": ""}


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".broken")


def _rename(path: Path, to: Path) -> None:
    if path.exists():
        path.replace(to)
