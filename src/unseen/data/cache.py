"""Cache of computed arrays in .npz files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.data.location import CACHE_VARIABLE, cache_folder
from unseen.files import remove_stale, temporary_beside

log = logging.getLogger("unseen")

Arrays = dict[str, NDArray[Any]]


def cached_arrays(data: str, title: str, depends_on: Any, compute: Callable[[], Arrays]) -> Arrays:
    """Return the result of `compute`, from the cache if it is there.

    A damaged file is computed again. If the cache cannot be written, a warning is logged.

    Args:
        data: Name of the data set, the folder below the cache folder.
        title: Start of the file name.
        depends_on: Everything the arrays depend on, as JSON data, including a version of the code.
        compute: Function that returns the arrays.
    """
    digest = hashlib.sha256(json.dumps([title, depends_on]).encode()).hexdigest()[:16]
    path = cache_folder(data) / f"{title.replace('/', '-')}-{digest}.npz"
    try:
        with zipfile.ZipFile(path) as archive:
            # numpy does not check what follows the end that a damaged header gives.
            if bad := archive.testzip():
                raise zipfile.BadZipFile(f"wrong checksum of {bad}")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (FileNotFoundError, NotADirectoryError):
        pass
    except Exception as error:  # a damaged archive may raise anything
        log.warning("%s is damaged (%s); computing it again", path, error)
    result = compute()
    temporary = temporary_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **result)
        temporary.replace(path)
        remove_stale(path.parent, path.name)
    except OSError as error:
        log.warning(
            "cannot write %s (%s), so it is computed at every call; set %s to another folder",
            path,
            error,
            CACHE_VARIABLE,
        )
        with contextlib.suppress(OSError):
            temporary.unlink()
    return result


def file_stamps(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return name, size and modification time of each file, to detect changes without reading."""
    return [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
