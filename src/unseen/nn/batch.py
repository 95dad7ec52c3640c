"""A batch of inputs and targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseen.errors import SampleError, UnseenError
from unseen.nn.inputs import (
    LABEL_KEYS,
    Inputs,
    check_finite,
    describe_type,
    inputs,
    map_inputs,
    take_rows,
)
from unseen.nn.ranks import ranks

MAX_BATCH_SIZE = 256  # without gradients
MAX_BATCH_NUMBERS = 4_000_000  # memory: 22 street scenes, not 256


class Batch(NamedTuple):
    """Inputs and targets. The inputs are a tuple, `Inputs` if some are keyword arguments."""

    x: tuple[Tensor, ...]
    y: Tensor

    @classmethod
    def of(cls, content: Any) -> Batch:
        """Make a batch of what a loader yields, and check it.

        That is (x, y), where x is a tensor, a tuple of tensors or a dict of them by the name of the
        model's argument; or one dict that holds the labels too. What follows y, as in
        (x, y, index), is left out. Inputs must be finite; images of uint8 are divided by 255.
        """
        if isinstance(content, CheckedBatch):
            return content
        x, y = _split(content)
        if not isinstance(y, Tensor):
            raise UnseenError(
                f"the loader must yield y as a tensor, it yielded {describe_type(y)}: convert it "
                "with torch.as_tensor(y)"
            )
        if y.dim() == 0:
            raise UnseenError(
                "the loader must yield batches, it yielded a single sample: put the data set into "
                "a torch.utils.data.DataLoader"
            )
        if len(y) != len(x[0]):
            if len(x) == len(y):
                raise UnseenError(
                    f"x is {len(x)} tensors, which would be {len(x)} inputs of the model: make one "
                    "batch of them with torch.stack(x)"
                )
            raise UnseenError(f"a batch has {len(x[0])} inputs and {len(y)} labels")
        if len(y) == 0:
            raise UnseenError("a batch is empty: it needs at least one sample")
        check_finite(x)
        keep = y.is_floating_point() or y.is_complex() or y.dtype == torch.bool
        return CheckedBatch(x, y if keep else y.long())

    def to(self, device: torch.device | str) -> Batch:
        """Move inputs and targets to a device."""
        return self._replace(x=map_inputs(lambda t: t.to(device), self.x), y=self.y.to(device))

    def rows(self, rows: slice | Tensor) -> Batch:
        """Return some of the samples."""
        y = self.y[rows.to(self.y.device) if isinstance(rows, Tensor) else rows]
        return Batch(take_rows(self.x, rows), y)


class CheckedBatch(Batch):
    """A batch that `Batch.of` has checked; a step need not check it again."""

    __slots__ = ()


def _split(content: Any) -> tuple[Inputs, Any]:
    """Return inputs and labels of what a loader yields."""
    if isinstance(content, Mapping):
        labels = [key for key in LABEL_KEYS if key in content]
        if len(labels) != 1:
            raise UnseenError(
                f"a batch that is a dict must hold its labels as one of {', '.join(LABEL_KEYS)}; "
                f"this one has {', '.join(map(str, content)) or 'no entries'}"
            )
        return inputs(content), content[labels[0]]
    if not isinstance(content, list | tuple) or len(content) < 2:
        remedy = ": one batch is given as [(x, y)]" if isinstance(content, Tensor) else ""
        raise UnseenError(
            f"the loader must yield (x, y), it yielded {describe_type(content)}{remedy}"
        )
    return inputs(content[0]), content[1]


def batches_from(loader: Iterable[Any], name: str) -> Iterator[Batch]:
    """Yield the batches of a loader; an error names the loader, the batch and the sample."""
    for number, pair in enumerate(iterate(loader, name)):
        try:
            batch = Batch.of(pair)
        except SampleError as error:
            where = f"{name}, batch index {number}, sample index {error.sample}"
            raise UnseenError(f"{where}: {error.problem}") from None
        except UnseenError as error:
            raise UnseenError(f"{name}, batch index {number}: {error}") from None
        yield batch


def iterate(loader: Any, name: str) -> Iterator[Any]:
    """Return an iterator over a loader, or raise an error that says what is taken."""
    try:
        return iter(loader)
    except TypeError:
        raise UnseenError(
            f"{name} must yield batches (x, y), such as a DataLoader or a list of batches; "
            f"it is {describe_type(loader)}"
        ) from None


def gather_batch(batch: Batch) -> Batch:
    """Return the samples of all processes."""
    return _map_rows(ranks().gather, batch)


def take_batch(batch: Batch) -> Batch:
    """Return the own samples of a batch that all processes have."""
    return _map_rows(ranks().take, batch)


def _map_rows(change: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """Change the tensors that have one row for each sample."""
    rows = batch.y.shape[:1]
    x = map_inputs(lambda t: change(t) if t.shape[:1] == rows else t, batch.x)
    return Batch(x, change(batch.y))


def inference_batch_size(x: tuple[Tensor, ...]) -> int:
    """Return how many samples like these to pass at once where no gradient is kept."""
    numbers = sum(t[0].numel() for t in x)
    return max(1, min(MAX_BATCH_SIZE, MAX_BATCH_NUMBERS // max(1, numbers)))
