"""Batches of a data set: of one step, of all samples, of a random part."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from unseen.api import Batch, Domain
from unseen.data.own_files.decoding import decoded_ahead
from unseen.data.own_files.samples import FileSamples, scale
from unseen.errors import SampleError, UnseenError
from unseen.nn.batch import inference_batch_size
from unseen.nn.inputs import describe_type
from unseen.user_code import describe_error, describe_failure


def load_split(domain: Domain, split: str) -> Dataset:
    """Load a split of a domain; an error names a split that is missing or empty."""
    try:
        data = domain.load(split)
        empty = len(data) == 0  # type: ignore[arg-type]
    except (KeyError, ValueError, IndexError, FileNotFoundError, TypeError) as error:
        problem = describe_failure(error) or describe_error(error)
        raise UnseenError(f'{domain.name} gives no split "{split}": {problem}') from error
    name = f"{domain.name}/{split}"
    if empty:
        raise UnseenError(f"{name} has 0 samples")
    with suppress(TypeError):  # a list, say, has no weak references: its errors name no split
        known = _ORIGINS[data].name if data in _ORIGINS else name
        both = known if name in known.split(" or ") else f"{known} or {name}"
        _ORIGINS[data] = Origin(both)
    return data


class Origin(NamedTuple):
    """Name of a data set, and the indices of its samples if it is a part."""

    name: str = "the data set"
    indices: Tensor | None = None


_ORIGINS: WeakKeyDictionary[Any, Origin] = WeakKeyDictionary()  # for errors


@contextmanager
def samples_named(data: Dataset, index: Sequence[int] | Tensor) -> Iterator[None]:
    """Name the data set and the index of a sample that an error is about."""
    try:
        yield
    except SampleError as error:
        place, origin = int(index[error.sample]), Origin()
        while isinstance(data, Subset):
            place, data = int(data.indices[place]), data.dataset
        with suppress(TypeError):
            origin = _ORIGINS.get(data, origin)
        place = place if origin.indices is None else int(origin.indices[place])
        raise UnseenError(f"{origin.name}, sample index {place}: {error.problem}") from None


def check_data_set(data: Any, name: str) -> None:
    """Raise unless this is a data set with samples that are found by their index."""
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__") or isinstance(data, Tensor):
        remedy = ": give its data set, loader.dataset" if hasattr(data, "dataset") else ""
        raise UnseenError(
            f"{name} must be a data set of samples (x, y), not {describe_type(data)}{remedy}"
        )
    if len(data) == 0:
        raise UnseenError(f"{name} has 0 samples")


def training_batch(source: Dataset, size: int, seed: int, step: int) -> Batch:
    """Return the batch of a step, a function of seed and step alone, as resuming requires."""
    return take(source, training_indices(source, size, seed, step))


def training_indices(source: Dataset, size: int, seed: int, step: int) -> Tensor:
    """Return the indices of the samples of a step."""
    total = len(source)  # type: ignore[arg-type]
    epoch, place = divmod(step, total // size)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
    return order[place * size : (place + 1) * size]


def evaluation_size(data: Dataset) -> int:
    """Return the batch size for evaluation, which only memory limits."""
    return inference_batch_size(take(data, torch.zeros(1, dtype=torch.int64)).x)


def batches_of(data: Dataset, size: int | None = None, limit: int | None = None) -> Iterator[Batch]:
    """Yield all samples in order, or the first `limit`, in batches of `size`."""
    total = len(data)  # type: ignore[arg-type]
    size = evaluation_size(data) if size is None else size
    total = total if limit is None else min(total, limit)
    yield from stream(data, torch.arange(total).split(size), total)


def take(data: Dataset, index: Tensor) -> Batch:
    """Return the samples at these indices as one batch."""
    files, places = files_under(data, index)
    if isinstance(data, TensorDataset):
        pair = data[index]
    elif files is not None:
        x, y = files.__getitems__(places)
        pair = scale(x), y
    else:
        samples = [data[i] for i in index.tolist()]
        try:
            pair = default_collate(samples)
        except (TypeError, RuntimeError, ValueError, KeyError) as error:
            raise UnseenError(
                f"samples of {type(data).__name__} cannot be stacked to a batch: "
                f"{describe_error(error)}; a data set gives pairs (x, y), x of one shape for all"
            ) from error
    with samples_named(data, index):
        return Batch.of(pair)


def stream(data: Dataset, parts: Iterable[Tensor], samples: int) -> Iterator[Batch]:
    """Yield the samples of each part of the indices as a batch.

    Files are decoded in worker processes, ahead of their use, if there are many of them.

    Args:
        samples: how many there are in all parts.
    """
    files, _ = files_under(data, torch.zeros(0, dtype=torch.int64))
    if files is None or not (workers := files.workers(samples)):
        for part in parts:
            yield take(data, part)
        return
    waiting: deque[Tensor] = deque()  # parts that are being decoded

    def places() -> Iterator[list[int]]:
        for part in parts:
            waiting.append(part)
            yield files_under(data, part)[1]

    for pair in decoded_ahead(files, places(), workers):
        with samples_named(data, waiting.popleft()):
            batch = Batch.of(pair)
        yield batch


def files_under(data: Dataset, index: Tensor) -> tuple[FileSamples | None, list[int]]:
    """Return the files that a data set is, or is a subset of, and the indices in it."""
    places = index.tolist()
    while isinstance(data, Subset):
        places, data = [int(data.indices[i]) for i in places], data.dataset
    return (data, places) if isinstance(data, FileSamples) else (None, places)


def sample_names(data: Dataset, index: Tensor) -> list[str]:
    """Return the name of each sample: its file, or its index in the data set."""
    files, places = files_under(data, index)
    return [str(place) for place in places] if files is None else files.names(places)


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
    _ORIGINS[part] = _ORIGINS.get(data, Origin())._replace(indices=chosen)
    return part


def random_part(data: Dataset, size: int) -> Sequence[Batch]:
    """Return `size` random samples in batches; data on disk is often sorted by class.

    Files are decoded again at every pass over the batches: memory holds one batch of them.
    """
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    parts = order[:size].split(evaluation_size(data))
    if files_under(data, order[:0])[0] is not None:
        return StreamedBatches(data, parts)
    return [take(data, part) for part in parts]


class StreamedBatches(Sequence[Batch]):
    """Batches of a data set that are made when they are asked for."""

    def __init__(self, data: Dataset, parts: Sequence[Tensor]) -> None:
        self.data, self.parts = data, parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: Any) -> Any:
        return take(self.data, self.parts[number])

    def __iter__(self) -> Iterator[Batch]:
        return stream(self.data, self.parts, sum(map(len, self.parts)))
