"""Look at a batch of any size in pieces of a few sizes, so that memory stays bounded.

A pass needs buffers of the size of its batch. Batches of ever new sizes make the C library's heap
grow: no freed buffer has the size of the next one. Pieces of a few sizes reuse the same buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from torch import Tensor

from unseen.errors import SampleError
from unseen.nn.batch import inference_batch_size
from unseen.nn.inputs import inputs, take_rows

T = TypeVar("T")


def pieces_of(x: Any, look: Callable[[Any], T]) -> Iterator[T]:
    """Yield what `look` returns for consecutive pieces of x; their sizes are powers of two."""
    values = inputs(x)
    start, total = 0, len(values[0])
    largest = inference_batch_size(values) if total else 0
    while start < total:
        size = 1 << (min(largest, total - start).bit_length() - 1)
        piece = take_rows(values, slice(start, start + size))
        try:
            yield look(piece[0] if isinstance(x, Tensor) else piece)
        except SampleError as error:
            raise SampleError(start + error.sample, error.problem) from None
        start += size
