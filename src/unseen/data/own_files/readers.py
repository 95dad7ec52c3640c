"""The contract of a reader: from a file, text or row of numbers to an array of one shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unseen.data.own_files.modality import Modality

Array = NDArray[Any]


class Fact(NamedTuple):
    """What a look at a file tells without decoding all of it."""

    shape: tuple[int, ...] = ()
    problem: str = ""  # why it cannot be read


class Reader:
    """Reads samples of one modality. What it needs to know is its state, kept in a run."""

    modality: ClassVar[Modality]
    from_files: ClassVar[bool] = True
    worth_caching: ClassVar[bool] = False  # decoding costs more than reading the result again

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, content: Any) -> Array:
        """Return a sample, (*shape) of dtype; images as uint8, which stands for 0..1."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the arguments that make this reader again, as JSON data."""
        raise NotImplementedError

    @staticmethod
    def look(path: Path, whole: bool) -> Fact:
        """Look at a file; `whole` decodes it."""
        raise NotImplementedError


def reader_classes() -> dict[str, type[Reader]]:
    """Return the readers by modality."""
    from unseen.data.own_files.array import ArrayReader
    from unseen.data.own_files.image import ImageReader
    from unseen.data.own_files.sound import SoundReader
    from unseen.data.own_files.table import TableReader
    from unseen.data.own_files.text import TextReader

    kinds = (ImageReader, SoundReader, TextReader, ArrayReader, TableReader)
    return {kind.modality: kind for kind in kinds}


def reader_from(modality: str, state: Mapping[str, Any]) -> Reader:
    """Make a reader of what a run recorded."""
    return reader_classes()[modality](**state)
