"""What a look at every file tells: its shape, whether it can be read, a fingerprint.

Results are cached by path, size and modification time: a second look only asks for these.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from unseen.data.location import cache_folder
from unseen.data.own_files.readers import Fact, Reader
from unseen.files import write_atomically

log = logging.getLogger("unseen")

VERSION = 2
PART = 4096  # bytes at the start and at the end that the fingerprint reads
WHOLE_UP_TO = 2000  # files of a data set that are decoded to check them; more are only opened
CHUNK = 256
REPORT_EVERY = 10.0  # seconds
PROCESSES_FROM = 1000  # files, from which on worker processes look at them

Stamp = tuple[int, int]  # size, modification time


class FileFact(NamedTuple):
    """What is known of a file."""

    size: int
    changed: int  # modification time in ns
    shape: tuple[int, ...]
    fingerprint: str  # equal for equal files, and seldom for others
    problem: str  # why it cannot be read; empty if it can


def gather_facts(paths: Sequence[Path], kind: type[Reader], title: str) -> list[FileFact | None]:
    """Return what is known of each file; None for a file that does not exist.

    Args:
        title: what the cache belongs to, e.g. the path of the manifest.
    """
    whole = len(paths) <= WHOLE_UP_TO
    name = hashlib.sha256(f"{VERSION} {kind.modality} {whole} {title}".encode()).hexdigest()[:16]
    file = cache_folder("own_files") / f"facts-{name}.json"
    known = _read(file)
    stamps = [_stamp(path) for path in paths]
    new = [
        path
        for path, stamp in zip(paths, stamps, strict=True)
        if stamp is not None and (str(path) not in known or known[str(path)][:2] != stamp)
    ]
    look = partial(look_at, look=kind.look, whole=whole)
    if len(new) >= PROCESSES_FROM:
        log.info("looking at %d files, once", len(new))
        with ProcessPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            found = list(_with_progress(pool.map(look, new, chunksize=CHUNK), len(new)))
    else:
        found = [look(path) for path in new]
    known |= {str(path): fact for path, fact in zip(new, found, strict=True)}
    if new:
        _write(file, {str(path): known[str(path)] for path in paths if str(path) in known})
    pairs = zip(paths, stamps, strict=True)
    return [None if stamp is None else known[str(path)] for path, stamp in pairs]


def _with_progress(facts: Iterable[FileFact], total: int) -> Iterator[FileFact]:
    """Yield the facts; say every few seconds how many there are and how long the rest takes."""
    start = shown = time.monotonic()
    for done, fact in enumerate(facts, start=1):
        if (now := time.monotonic()) - shown > REPORT_EVERY:
            shown, left = now, (now - start) * (total - done) / done
            log.info("looked at %d of %d files, %.0f s left", done, total, left)
        yield fact


def look_at(path: Path, look: Callable[[Path, bool], Fact], whole: bool) -> FileFact:
    """Look at one file."""
    size, changed = _stamp(path) or (0, 0)
    try:
        fingerprint = _fingerprint(path, size)
    except OSError as error:
        return FileFact(size, changed, (), "", f"cannot be read: {error.strerror or error}")
    shape, problem = look(path, whole)
    return FileFact(size, changed, tuple(shape), fingerprint, problem)


def content_digest(path: Path) -> str:
    """Return a digest of all of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def _fingerprint(path: Path, size: int) -> str:
    with path.open("rb", buffering=0) as file:
        digest = hashlib.blake2b(file.read(PART), digest_size=12)
        if size > PART:
            file.seek(max(PART, size - PART))
            digest.update(file.read(PART))
    digest.update(str(size).encode())
    return digest.hexdigest()


def _stamp(path: Path) -> Stamp | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _read(file: Path) -> dict[str, FileFact]:
    try:
        rows = json.loads(file.read_bytes())
        return {
            path: FileFact(int(size), int(changed), tuple(shape), str(mark), str(problem))
            for path, (size, changed, shape, mark, problem) in rows.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):  # absent or damaged: look again
        return {}


def _write(file: Path, facts: dict[str, FileFact]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(facts).encode())
    except OSError as error:
        log.warning("cannot write %s (%s): files are looked at again at every call", file, error)
