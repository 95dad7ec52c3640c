"""A sample of a loader's data that is spread evenly over the loader."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.nn.batch import Batch, batches_from
from unseen.nn.inputs import Inputs

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
            batch = batch.rows(index)
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
    batches = pad_alike(batches)
    shapes = {tuple(t.shape[1:] for t in (*b.x, b.y)) for b in batches}
    if len(shapes) > 1:
        both = " and ".join(str([tuple(s) for s in shape]) for shape in sorted(shapes)[:2])
        raise UnseenError(f"the samples of {name} must have one shape, they have {both}")
    parts = zip(*(b.x for b in batches), strict=True)
    x = Inputs.like(batches[0].x, [torch.cat(part).cpu() for part in parts])
    y = torch.cat([b.y for b in batches]).cpu()
    index = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:samples]
    return Batch(x, y).rows(index)


def pad_alike(batches: list[Batch]) -> list[Batch]:
    """Pad sequences with zeros to the longest of all batches, if a mask says what counts."""
    first = batches[0].x
    if not any("mask" in name for name in getattr(first, "names", ())):
        return batches
    lengths = [max(b.x[i].shape[1] if b.x[i].dim() > 1 else 0 for b in batches)
               for i in range(len(first))]  # fmt: skip

    def pad(t: Tensor, length: int) -> Tensor:
        short = t.dim() == 2 and t.shape[1] < length
        return torch.nn.functional.pad(t, (0, length - t.shape[1])) if short else t

    return [
        b._replace(x=Inputs.like(b.x, map(pad, b.x, lengths))) if len(b.x) == len(first) else b
        for b in batches
    ]


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
