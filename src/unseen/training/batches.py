"""Batches of a data set: of one step, of all samples, of a random part."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from unseen.api import Batch, Domain
from unseen.errors import UnseenError
from unseen.nn.batch import inference_batch_size
from unseen.user_code import describe_error, describe_failure


def load_split(domain: Domain, split: str) -> Dataset:
    """Load a split of a domain; an error names a split that is missing or empty."""
    try:
        data = domain.load(split)
        empty = len(data) == 0  # type: ignore[arg-type]
    except (KeyError, ValueError, IndexError, FileNotFoundError, TypeError) as error:
        problem = describe_failure(error) or describe_error(error)
        raise UnseenError(f'{domain.name} gives no split "{split}": {problem}') from error
    if empty:
        raise UnseenError(f"{domain.name}/{split} has 0 samples")
    return data


def training_batch(source: Dataset, size: int, seed: int, step: int) -> Batch:
    """Return the batch of a step, a function of seed and step alone, as resuming requires."""
    total = len(source)  # type: ignore[arg-type]
    epoch, place = divmod(step, total // size)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
    return take(source, order[place * size : (place + 1) * size])


def evaluation_size(data: Dataset) -> int:
    """Return the batch size for evaluation, which only memory limits."""
    return inference_batch_size(take(data, torch.zeros(1, dtype=torch.int64)).x)


def batches_of(data: Dataset, size: int | None = None, limit: int | None = None) -> Iterator[Batch]:
    """Yield all samples in order, or the first `limit`, in batches of `size`."""
    total = len(data)  # type: ignore[arg-type]
    size = evaluation_size(data) if size is None else size
    total = total if limit is None else min(total, limit)
    for start in range(0, total, size):
        yield take(data, torch.arange(start, min(start + size, total)))


def take(data: Dataset, index: Tensor) -> Batch:
    """Return the samples at these indices as one batch."""
    if isinstance(data, TensorDataset):
        return Batch.of(data[index])
    samples = [data[i] for i in index.tolist()]
    try:
        return Batch.of(default_collate(samples))
    except (TypeError, RuntimeError, ValueError, KeyError) as error:
        raise UnseenError(
            f"samples of {type(data).__name__} cannot be stacked to a batch: "
            f"{describe_error(error)}; a data set gives pairs (x, y), x of one shape for all"
        ) from error


def subsample(data: Dataset, samples: int | None) -> Dataset:
    """Return a random subset, the same at every call; all data for None or if there is less."""
    total = len(data)  # type: ignore[arg-type]
    if samples is None or samples >= total:
        return data
    chosen = (
        torch.randperm(total, generator=torch.Generator().manual_seed(0))[:samples].sort().values
    )
    if not isinstance(data, TensorDataset):
        return Subset(data, chosen.tolist())
    part = copy.copy(data)  # a subclass may yield more than its tensors
    part.tensors = tuple(t[chosen] for t in data.tensors)
    return part


def random_part(data: Dataset, size: int) -> list[Batch]:
    """Return `size` random samples in batches; data on disk is often sorted by class."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    return [take(data, part) for part in order[:size].split(evaluation_size(data))]
