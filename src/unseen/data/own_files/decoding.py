"""Decode samples in worker processes, ahead of their use."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unseen.data.own_files.samples import FileSamples, scale
from unseen.errors import UnseenError

AHEAD = 4  # batches that each worker decodes before they are asked for

Pair = tuple[Tensor, Tensor]


def decoded_ahead(
    files: FileSamples, places: Iterable[Sequence[int]], workers: int
) -> Iterator[Pair]:
    """Yield the samples at these places as batches, in their order."""
    loader = DataLoader(
        _Caught(files),
        batch_sampler=places,  # type: ignore[arg-type]
        num_workers=workers,
        prefetch_factor=AHEAD,
        collate_fn=_as_it_is,
        worker_init_fn=_leave_signals,
        generator=torch.Generator(),  # the global one belongs to training
    )
    for pair in loader:
        if isinstance(pair, str):
            raise UnseenError(pair)
        yield scale(pair[0]), pair[1]


class _Caught(Dataset[Any]):
    """The batches of files; a problem is returned as text, for the process that trains."""

    def __init__(self, files: FileSamples) -> None:
        self.files = files

    def __getitems__(self, indices: Sequence[int]) -> Pair | str:
        try:
            return self.files.__getitems__(indices)
        except UnseenError as error:
            return str(error)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])


def _as_it_is(batch: Any) -> Any:
    return batch


def _leave_signals(worker: int) -> None:
    """Leave Ctrl-C to the process that trains; SIGTERM ends the worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
