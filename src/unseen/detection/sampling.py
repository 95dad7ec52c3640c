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


def random_samples(loader: Iterable[Any], name: str, samples: int, seed: int) -> Batch:
    """Return random samples of all batches, which may be sorted by class; `name` is for errors."""
    batches = list(batches_from(loader, name))
    if not batches:
        raise UnseenError(
            f"{name} is empty: give batches (x, y) of source data that was not trained on"
        )
    shapes = {tuple(t.shape[1:] for t in (*b.x, b.y)) for b in batches}
    if len(shapes) > 1:
        both = " and ".join(str([tuple(s) for s in shape]) for shape in sorted(shapes)[:2])
        raise UnseenError(f"the samples of {name} must have one shape, they have {both}")
    x = tuple(torch.cat(parts).cpu() for parts in zip(*(b.x for b in batches), strict=True))
    y = torch.cat([b.y for b in batches]).cpu()
    index = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:samples]
    return Batch(tuple(t[index] for t in x), y[index])


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
