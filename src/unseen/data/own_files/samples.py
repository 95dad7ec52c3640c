"""A split of the user's files as a data set: samples are decoded when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from unseen.data.own_files.cache import DecodedSamples
from unseen.data.own_files.readers import Reader

WORKERS_FROM = 512  # samples to decode; starting processes takes as long as decoding these
MOST_WORKERS = 4


class FileSamples(Dataset[Any]):
    """Samples (x, y) of rows. Images are kept as uint8 until a batch is made of them.

    Args:
        contents: the path, text or features of every row of the data, of all splits.
        rows: which of them belong to this split.
        labels: (N, ...) of this split, or a function from the number of a row to its label.
    """

    def __init__(
        self,
        reader: Reader,
        contents: Sequence[Any],
        rows: Sequence[int],
        labels: Tensor | Callable[[int], Tensor],
        cache: DecodedSamples | None,
    ) -> None:
        self.reader, self.contents, self.rows = reader, contents, list(rows)
        self.labels, self.cache = labels, cache

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.__getitems__([index])
        return scale(x)[0], y[0]

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return a batch; images are uint8, see `scale`."""
        x = torch.from_numpy(np.stack([self._read(self.rows[i]) for i in indices]))
        if isinstance(self.labels, Tensor):
            return x, self.labels[torch.as_tensor(indices)]
        return x, torch.stack([self.labels(self.rows[i]) for i in indices])

    def _read(self, row: int) -> Any:
        if self.cache is None:
            return self.reader.read(self.contents[row])
        sample = self.cache.get(row)
        if sample is None:
            sample = self.reader.read(self.contents[row])
            self.cache.put(row, sample)
        return sample

    def names(self, indices: Sequence[int]) -> list[str]:
        """Return the file of each sample, or its number among the rows of the manifest."""
        rows = [self.rows[i] for i in indices]
        files = self.reader.from_files
        return [str(self.contents[row]) if files else str(row) for row in rows]

    def workers(self, samples: int) -> int:
        """Return how many processes should decode that many samples; 0 is none."""
        if self.cache is None or min(samples, len(self), self.cache.missing()) < WORKERS_FROM:
            return 0
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return min(MOST_WORKERS, cores or 1)


def scale(x: Tensor) -> Tensor:
    """Return images of uint8 as floats in 0..1, other inputs as they are."""
    return x.to(torch.get_default_dtype()) / 255 if x.dtype == torch.uint8 else x
