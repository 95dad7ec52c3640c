"""Samples to predict, read in order and a batch at a time. This file imports no torch."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.own_files.streaming import FileStream, Item
from unseen.deploy.input_reader import InputReader
from unseen.deploy.reductions import Array
from unseen.errors import UnseenError, naming

BATCH = 256  # samples at most
BATCH_NUMBERS = 4_000_000  # in the inputs of a batch
MOST_READERS = 4  # threads that decode files
UNKNOWN = -1  # label of a sample without one


@dataclass(frozen=True)
class Chunk:
    """A batch of samples to predict."""

    names: Sequence[str]
    domains: Sequence[str]
    labels: Array  # (N,) index of the class, UNKNOWN without
    x: Any


class Samples(ABC):
    """Samples in a fixed order. `references` lists them, `read` reads some."""

    total: int
    batch: int  # samples to read at once
    identity: dict[str, Any]  # says whether work that was interrupted is on the same samples

    @abstractmethod
    def references(self, start: int) -> Iterator[Any]:
        """Yield what `read` takes, from sample number `start` on."""

    @abstractmethod
    def read(self, references: Sequence[Any]) -> Chunk:
        """Return samples as a batch."""


class StreamedFiles(Samples):
    """The samples of a manifest or folder, larger than memory if need be."""

    def __init__(self, path: Path, reader: InputReader, classes: Sequence[str] = ()) -> None:
        self.stream = FileStream(path, reader.modality, reader.columns)
        self.reader = reader
        scan = self.stream.scan()
        self.total, self.batch = scan.total, batch_size(reader.shape)
        self.identity = {"data": str(path.resolve()), "samples": scan.total, "digest": scan.digest}
        self._index = {name: i for i, name in enumerate(classes)}
        files = reader.modality not in ("text", "table")
        self._threads = ThreadPoolExecutor(_cores()) if files else None

    def references(self, start: int) -> Iterator[Item]:
        return itertools.islice(iter(self.stream), start, None)

    def read(self, references: Sequence[Item]) -> Chunk:
        if self._threads is None:
            rows = [self._sample(item) for item in references]
        else:
            rows = [*self._threads.map(self._sample, references)]
        labels = [self._index.get(item.label, UNKNOWN) for item in references]
        return Chunk(
            [item.name for item in references],
            [item.domain for item in references],
            np.array(labels, np.int64),
            self.reader.stack(rows),
        )

    def _sample(self, item: Item) -> Array:
        place = str(self.stream.path)
        with naming(place if item.where == item.name else f"{place}, {item.where}"):
            return self.reader.read(item.content)


def batch_size(shape: Sequence[int | None]) -> int:
    """Return how many samples of this shape to read at once."""
    numbers = int(np.prod([size or 1 for size in shape]))
    return max(1, min(BATCH, BATCH_NUMBERS // max(1, numbers)))


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST_READERS, cores or 1)


def open_samples(path: Path, reader: InputReader, classes: Sequence[str] = ()) -> StreamedFiles:
    """Return the samples of a manifest or folder for a model that has this reader."""
    if reader.reader is None:
        raise UnseenError(
            f"{reader.place} was not trained on files, and its inputs are no images (3, H, W): "
            "name a domain of its task, --domain, or give arrays in Python"
        )
    return StreamedFiles(path, reader, classes)
