"""The state of streams on disk: a snapshot, and a journal of what came since.

A record is appended to the journal and synced before any of its requests is answered, so that a
kill or a power cut loses no acknowledged sample. The end of a journal that a kill has cut is
dropped: nobody was answered for it. Files hold numbers and JSON; loading runs no code.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from unseen.deploy.reductions import Array
from unseen.errors import UnseenError
from unseen.files import append, write_atomically

HEAD = struct.Struct("<II")  # length and checksum of a record
COMPACT = 16_000_000  # bytes of a journal after which a snapshot is written
ABOUT = "about"


class Journal:
    """Files NAME.snapshot and NAME.journal in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.snapshot, self.journal = folder / f"{name}.snapshot", folder / f"{name}.journal"
        self.size = self.journal.stat().st_size if self.journal.is_file() else 0

    @property
    def is_long(self) -> bool:
        return self.size > COMPACT

    def append(self, record: bytes) -> None:
        """Add a record, durably."""
        append(self.journal, record)
        self.size += len(record)

    def replace(self, snapshot: bytes) -> None:
        """Write a snapshot that has everything of the journal; empty the journal."""
        write_atomically(self.snapshot, snapshot)
        # A kill here leaves records that the snapshot has too; they are skipped by their number.
        write_atomically(self.journal, b"")
        self.size = 0

    def read(self) -> tuple[bytes | None, list[bytes]]:
        """Return the snapshot and the complete records; cut what a kill left after them."""
        snapshot = self.snapshot.read_bytes() if self.snapshot.is_file() else None
        content = self.journal.read_bytes() if self.journal.is_file() else b""
        records = list(_records(content))
        length = sum(map(len, records)) + HEAD.size * len(records)
        if length != len(content):
            if _has_record(content[length:]):  # a record was synced before the next one began
                raise UnseenError(
                    f"{self.journal} is damaged after {len(records)} records, and complete ones "
                    "follow: restore it from a copy, or move it away to begin again"
                )
            write_atomically(self.journal, content[:length])
        self.size = length
        return snapshot, records


def pack(about: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """Return JSON and arrays as bytes, after their length and checksum."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    whole[ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    content = save(whole)
    return HEAD.pack(len(content), zlib.crc32(content)) + content


def unpack(content: bytes, place: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return what `pack` got, from a record; also from one without length and checksum."""
    try:
        # Snapshots of older versions have no checksum; a damaged one is no safetensors either.
        arrays = load(record_at(content, 0) or content)
        about = json.loads(arrays.pop(ABOUT).tobytes())
    except (SafetensorError, ValueError, KeyError) as error:
        raise UnseenError(f"{place} is damaged: {error}; move it away to begin again") from error
    return about, arrays


def record_at(content: bytes, start: int) -> bytes | None:
    """Return the complete record whose length begins there, without length and checksum."""
    if start < 0 or start + HEAD.size > len(content):
        return None
    length, checksum = HEAD.unpack_from(content, start)
    record = content[start + HEAD.size : start + HEAD.size + length]
    # Zeros, which a power cut can leave, are not a record of length 0.
    whole = 0 < length == len(record) and zlib.crc32(record) == checksum
    return record if whole else None


def _records(content: bytes) -> Iterator[bytes]:
    start = 0
    while (record := record_at(content, start)) is not None:
        yield record
        start += HEAD.size + len(record)


def _has_record(content: bytes) -> bool:
    """Return whether a complete record begins anywhere: safetensors starts with size and '{'."""
    place = content.find(b"{")
    while place >= 0:
        if record_at(content, place - HEAD.size - 8) is not None:
            return True
        place = content.find(b"{", place + 1)
    return False
