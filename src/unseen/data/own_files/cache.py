"""Decoded samples in one file, which worker processes fill and share.

Samples are read and written at their place in the file, so that memory holds none of them. Each has
a checksum: one that is absent or damaged is decoded again. The file is sparse: it takes the space
of the samples that it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.data.location import CACHE_VARIABLE, cache_folder

log = logging.getLogger("unseen")

VERSION = 1
LARGEST = 20 * 2**30  # bytes of all files together; the oldest go first
FREE = 0.5  # part of the free space that one file may take
MARK = 4  # bytes of a checksum


class DecodedSamples:
    """A file of `count` samples of one shape and type; a cache: every failure is a miss."""

    def __init__(self, key: Any, count: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        digest = hashlib.sha256(json.dumps([VERSION, key, count, shape, dtype.str]).encode())
        self.path = cache_folder("own_files") / f"decoded-{digest.hexdigest()[:16]}.bin"
        self.count, self.shape, self.dtype = count, shape, dtype
        self.bytes = int(np.prod(shape)) * dtype.itemsize
        self.capacity = count if hasattr(os, "pread") else 0  # Windows has no such call
        self._file: int | None = None

    def get(self, index: int) -> NDArray[Any] | None:
        """Return a sample, or None if it is not there."""
        file = self._open()
        if file is None or index >= self.capacity:
            return None
        try:
            mark = os.pread(file, MARK, index * MARK)
            if not any(mark):
                return None
            content = os.pread(file, self.bytes, self._place(index))
        except OSError:
            return None
        if len(content) != self.bytes or mark != _mark(content):
            return None
        return np.frombuffer(content, self.dtype).reshape(self.shape)

    def put(self, index: int, sample: NDArray[Any]) -> None:
        """Keep a sample; a full disk ends the caching."""
        file = self._open()
        if file is None or index >= self.capacity:
            return
        content = np.ascontiguousarray(sample, self.dtype).tobytes()
        try:
            os.pwrite(file, content, self._place(index))
            os.pwrite(file, _mark(content), index * MARK)
        except OSError as error:
            self._give_up(error)

    def missing(self) -> int:
        """Return the number of samples that are not there."""
        file = self._open()
        if file is None:
            return self.count
        marks = np.frombuffer(os.pread(file, self.count * MARK, 0), np.uint32)
        return self.count - int(np.count_nonzero(marks))

    def _place(self, index: int) -> int:
        return self.count * MARK + index * self.bytes

    def _open(self) -> int | None:
        if self._file is None and self.capacity:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _remove_oldest(self.path)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
                os.utime(self.path)
                free = shutil.disk_usage(self.path.parent).free + _space(self.path)
                fits = (int(free * FREE) - self.count * MARK) // max(1, self.bytes)
                self.capacity = max(0, min(self.count, fits))
            except OSError as error:
                self._give_up(error)
        return self._file

    def _give_up(self, error: OSError) -> None:
        self.capacity = 0
        log.warning(
            "%s cannot be written (%s), so files are decoded whenever they are needed; set %s to "
            "another folder",
            self.path,
            error.strerror or error,
            CACHE_VARIABLE,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __del__(self) -> None:
        if (file := self.__dict__.get("_file")) is not None:
            with contextlib.suppress(OSError):
                os.close(file)


def _mark(content: bytes) -> bytes:
    return max(1, zlib.crc32(content)).to_bytes(MARK, "little")  # 0 means absent


def _space(path: Path) -> int:
    return path.stat().st_blocks * 512


def _remove_oldest(keep: Path) -> None:
    """Remove the files that were opened longest ago until the rest fits the limit."""
    files = [p for p in keep.parent.glob("decoded-*.bin") if p != keep]
    files.sort(key=lambda path: path.stat().st_mtime)
    total = sum(map(_space, files))
    for path in files:
        if total <= LARGEST:
            break
        total -= _space(path)
        path.unlink(missing_ok=True)
