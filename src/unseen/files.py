"""JSON files and folder locks; atomic writes are those of `unseen.atomic`."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unseen.atomic import append as append
from unseen.atomic import complete_writes as complete_writes
from unseen.atomic import read_together as read_together
from unseen.atomic import remove_leftovers as remove_leftovers
from unseen.atomic import remove_stale as remove_stale
from unseen.atomic import replace_files as replace_files
from unseen.atomic import temporary_beside as temporary_beside
from unseen.atomic import write_atomically as write_atomically
from unseen.errors import UnseenError
from unseen.reading import read_json as read_json

PROBE = 0.2  # seconds: another process may hold a lock for a moment to see whether it is free

_held = threading.local()  # .paths are the locks of this thread


class FolderBusy(UnseenError):
    """Another process writes to the folder."""


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(value, indent=2) + "\n").encode()


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())


@contextlib.contextmanager
def locked(folder: Path, wait: float = 0.0, nested: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a folder; raise FolderBusy if another process holds it.

    What a killed process has left in the folder is completed or removed.

    The lock is the file `.NAME.lock` beside the folder. The file stays after release: removing it
    would let a second process lock a new file of that name while a third still holds the old one.
    The operating system releases the lock when the process ends.

    Args:
        wait: seconds to wait for the other process.
        nested: do nothing if this thread holds the lock already.
    """
    path = _lock_path(folder)
    held: set[Path] = _held.__dict__.setdefault("paths", set())
    if nested and path in held:
        yield
        return
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=max(wait, PROBE))
    except Timeout:
        raise FolderBusy(
            f"{folder} is being written by another process: wait for it, or use another --out or "
            "--state"
        ) from None
    except OSError as error:
        raise UnseenError(
            f"cannot write {path}: {error.strerror or error}; choose another folder"
        ) from error
    held.add(path)
    try:
        complete_writes(folder)
        remove_leftovers(folder)
        yield
    finally:
        held.discard(path)
        lock.release()


def is_locked(folder: Path) -> bool:
    """Return whether another process, or another thread, holds the lock of a folder."""
    path = _lock_path(folder)
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        return True
    lock.release()
    return False


def _lock_path(folder: Path) -> Path:
    real = folder.resolve()  # a symbolic link to the folder has the same lock
    return real.parent / f".{real.name}.lock"
