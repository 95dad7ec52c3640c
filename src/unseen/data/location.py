"""Location of data sets: $UNSEEN_DATA, else the user's cache folder; one folder per data set."""

from __future__ import annotations

import os
from pathlib import Path

from unseen.errors import UnseenError

VARIABLE = "UNSEEN_DATA"
CACHE_VARIABLE = "UNSEEN_CACHE"


class MissingData(UnseenError):
    """A file or folder of a data set is missing."""


def data_root() -> Path:
    """Return the folder that holds one folder per data set; it may not exist yet."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    import pooch  # slow to import

    return Path(pooch.os_cache("unseen"))


def data_folder(name: str, root: Path | None = None) -> Path:
    """Return the folder of a data set, which must exist."""
    folder = (data_root() if root is None else root) / name
    if not folder.is_dir():
        raise MissingData(f"no {name} data: {folder} does not exist; {remedy(name)}")
    return folder


def remedy(name: str) -> str:
    """Return advice for missing data."""
    named = os.environ.get(VARIABLE)
    now = f"now {named}" if named else f"not set, so {data_root()} was searched"
    return (
        f"`unseen data fetch {name}` downloads it or explains how, or set {VARIABLE} to the folder "
        f"that contains {name}/ ({now})"
    )


def cache_folder(name: str) -> Path:
    """Return the folder for arrays computed from a data set: $UNSEEN_CACHE or the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser() / name
    import pooch

    return Path(pooch.os_cache("unseen")) / "made" / name
