"""Read arrays of .npy files, all of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from unseen.data.own_files.readers import Array, Fact, Reader
from unseen.errors import UnseenError


class ArrayReader(Reader):
    """Arrays as float32; matrices (H, W) get a channel axis, uint8 images (C, H, W) are kept."""

    modality: ClassVar = "array"

    def __init__(self, *, shape: Sequence[int], dtype: str = "float32") -> None:
        self.stored = tuple(shape)
        self.shape = (1, *self.stored) if len(self.stored) == 2 else self.stored
        self.dtype = np.dtype(dtype)

    @classmethod
    def of_file(cls, path: Path) -> ArrayReader:
        """Return a reader for arrays like this one."""
        array = _load(path)
        kind = "uint8" if array.dtype == np.uint8 and array.ndim in (2, 3) else "float32"
        return cls(shape=array.shape, dtype=kind)

    def state(self) -> dict[str, Any]:
        return {"shape": list(self.stored), "dtype": self.dtype.name}

    def read(self, content: Path | BinaryIO) -> Array:
        array = _load(content)
        name = content if isinstance(content, Path) else "the file"
        if array.shape != self.stored:
            raise UnseenError(f"{name} has shape {array.shape}, expected {self.stored}")
        if self.dtype == np.uint8 and array.dtype != np.uint8:
            raise UnseenError(
                f"{name} holds {array.dtype}, expected uint8, 0..255, as the first file: save all "
                "files with one type"
            )
        array = np.array(array).reshape(self.shape).astype(self.dtype)
        if not np.isfinite(array).all():
            raise UnseenError(f"{name} holds NaN or infinity")
        return array

    @staticmethod
    def look(path: Path, whole: bool) -> Fact:
        try:
            array = _load(path)
        except UnseenError as error:
            return Fact((), str(error).removeprefix(f"{path} "))
        if array.ndim == 0 or array.dtype.kind not in "biuf":
            return Fact((), f"expected numbers, it holds {array.dtype} of shape {array.shape}")
        if whole and not np.isfinite(array).all():
            return Fact((), "it holds NaN or infinity")
        return Fact(array.shape)


def _load(file: Path | BinaryIO) -> Array:
    mode: Any = "r" if isinstance(file, Path) else None
    try:
        array: Array = np.load(file, mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        name = file if isinstance(file, Path) else "the file"
        raise UnseenError(f"{name} cannot be read as .npy: {error}") from None
    return array
