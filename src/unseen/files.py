"""Atomic writes, JSON files and folder locks."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unseen.errors import UnseenError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see either the old content or the new, never a part."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Mode 0o666 lets the kernel apply the umask; tempfile would make the file private.
        binary = getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | binary, 0o666)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        reason = error.strerror or error
        raise UnseenError(
            f"cannot write {path}: {reason}; free space there or choose another folder"
        ) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder; raise UnseenError if another process holds it.

    The lock is the file `.NAME.lock` beside the folder. The file stays after release: removing it
    would let a second process lock a new file of that name while a third still holds the old one.
    The operating system releases the lock when the process ends.
    """
    real = folder.resolve()  # a symbolic link to the folder has the same lock
    path = real.parent / f".{real.name}.lock"
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise UnseenError(
            f"{folder} is being written by another process: wait for it, or use another --out"
        ) from None
    except OSError as error:
        raise UnseenError(
            f"cannot write {path}: {error.strerror or error}; choose another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise UnseenError(f"{path} does not exist: is {path.parent} a run folder?") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnseenError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise UnseenError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value
