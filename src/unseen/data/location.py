"""Where real data is: in the folder that UNSEEN_DATA names, else in the user's cache. One folder per data set."""

from __future__ import annotations

import os
from pathlib import Path

from unseen.errors import UnseenError

VARIABLE = "UNSEEN_DATA"
CACHE_VARIABLE = "UNSEEN_CACHE"


class MissingData(UnseenError):
    """A file or folder of a data set is not there."""


def data_root() -> Path:
    """The folder that holds one folder per data set; it need not exist yet."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    import pooch  # a tenth of a second that `import unseen` need not take

    return Path(pooch.os_cache("unseen"))


def data_folder(name: str, root: Path | None = None) -> Path:
    """The folder of one data set, which must exist."""
    folder = (data_root() if root is None else root) / name
    if not folder.is_dir():
        raise MissingData(f"no {name} data: {folder} does not exist; {remedy(name)}")
    return folder


def remedy(name: str) -> str:
    """What to do where data is missing."""
    named = os.environ.get(VARIABLE)
    now = f"now {named}" if named else f"not set now, so {data_root()} was looked in"
    return f"`unseen data fetch {name}` gets it or says how, or set {VARIABLE} to the folder that holds {name}/ ({now})"


def cache_folder(name: str) -> Path:
    """A folder for what is made once from data, such as corrupted copies; UNSEEN_CACHE names another place for it."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser() / name
    import pooch

    return Path(pooch.os_cache("unseen")) / "made" / name
