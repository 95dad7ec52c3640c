"""Arrays that take long to make: kept in a file, read from it the next time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.data.location import CACHE_VARIABLE, cache_folder

log = logging.getLogger("unseen")

Arrays = dict[str, NDArray[Any]]


def made_once(data: str, title: str, depends_on: Any, make: Callable[[], Arrays]) -> Arrays:
    """What `make` gives, or what it gave before under the same title for a data set.

    `depends_on`, anything that JSON can say, must tell all that the arrays depend on: a version of the code among it. A file
    that is damaged is made again; where none can be written, everything is made at every call, and a warning says so.
    """
    digest = hashlib.sha256(json.dumps([title, depends_on]).encode()).hexdigest()[:16]
    path = cache_folder(data) / f"{title.replace('/', '-')}-{digest}.npz"
    try:
        with zipfile.ZipFile(path) as whole:
            if (
                spoilt := whole.testzip()
            ):  # reads all of it: numpy alone stops where a spoilt header says that the array ends
                raise zipfile.BadZipFile(f"{spoilt} is not what was written")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # a broken byte in the archive's directory leads anywhere
        log.warning("%s is damaged (%s) and is made again", path, error)
    arrays = make()
    torn = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with torn.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        torn.replace(path)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s) and is made at every call: let %s name another place",
            path,
            error,
            CACHE_VARIABLE,
        )
        with contextlib.suppress(OSError):
            torn.unlink()
    return arrays


def stamps(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """What tells a file from another, without reading it: name, size and time of change."""
    return [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
