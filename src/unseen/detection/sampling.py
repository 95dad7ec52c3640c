"""A sample of a loader's data that is spread evenly over the loader."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.nn.batch import Batch, batches_from

MAX_SAMPLES = 2000  # of the source, for its statistics


def sample_batches(loader: Iterable[Any], name: str = "the loader") -> Iterator[Batch]:
    """Yield up to about MAX_SAMPLES samples, the same at every call; `name` is for errors.

    A loader may be sorted by class: one with a length gives some samples of every batch.
    """
    batches = loader_length(loader)
    generator = torch.Generator().manual_seed(0)
    total = 0
    for batch in batches_from(loader, name):
        if batches is not None:
            index = torch.randperm(len(batch.x[0]), generator=generator)
            index = index[: math.ceil(MAX_SAMPLES / batches)]
            x = tuple(t[index.to(t.device)] for t in batch.x)
            batch = Batch(x, batch.y[index.to(batch.y.device)])
        yield batch
        total += len(batch.x[0])
        if batches is None and total >= MAX_SAMPLES:
            break


def stack_rows(compute: Callable[[Batch], Tensor], batches: Iterable[Batch]) -> Tensor:
    """Concatenate the rows that `compute` returns for each batch, on the CPU."""
    rows = [compute(batch).cpu() for batch in batches]
    if not rows:
        raise UnseenError(
            "no source data to take statistics from: the loader is empty "
            "(a generator can be iterated only once)"
        )
    return torch.cat(rows)


def loader_length(loader: Any) -> int | None:
    """Return the number of batches, or None if the loader does not know it."""
    try:
        return len(loader)
    except TypeError:  # a DataLoader over an IterableDataset has a length that raises
        return None
