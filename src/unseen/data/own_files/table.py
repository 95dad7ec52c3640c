"""Read rows of numbers, standardized with mean and deviation of the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from unseen.data.own_files.readers import Array, Reader


class TableReader(Reader):
    """Feature columns of a manifest, each with mean 0 and deviation 1 on the training rows."""

    modality: ClassVar = "table"
    from_files: ClassVar = False

    def __init__(
        self, *, columns: Sequence[str], mean: Sequence[float], deviation: Sequence[float]
    ) -> None:
        self.columns = tuple(columns)
        self.mean, self.deviation = (np.asarray(v, np.float64) for v in (mean, deviation))
        self.shape, self.dtype = (len(self.columns),), np.dtype(np.float32)

    @classmethod
    def of_rows(cls, columns: Sequence[str], rows: Sequence[Sequence[float]]) -> TableReader:
        """Return a reader for these training rows; a constant column stays at 0."""
        values = np.asarray(rows, np.float64)
        deviation = values.std(0)
        deviation[deviation == 0] = 1.0
        return cls(columns=columns, mean=values.mean(0).tolist(), deviation=deviation.tolist())

    def state(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
        }

    def read(self, content: Sequence[float]) -> Array:
        return ((np.asarray(content) - self.mean) / self.deviation).astype(np.float32)
