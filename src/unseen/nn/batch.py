"""A batch of inputs and targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseen.errors import SampleError, UnseenError
from unseen.nn.inputs import check_finite, describe_type, inputs

MAX_BATCH_SIZE = 256  # without gradients
MAX_BATCH_NUMBERS = 4_000_000  # memory: 22 street scenes, not 256


class Batch(NamedTuple):
    """Inputs and targets. The inputs are always a tuple; a model is called as model(*x)."""

    x: tuple[Tensor, ...]
    y: Tensor

    @classmethod
    def of(cls, pair: Any) -> Batch:
        """Make a batch of what a loader yields, (x, y) or ((x1, x2, ...), y), and check it.

        Inputs must be finite; images of uint8 are divided by 255.
        """
        if isinstance(pair, CheckedBatch):
            return pair
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise UnseenError(
                f"the loader must yield (x, y), it yielded {describe_type(pair)}{_remedy(pair)}"
            )
        x, y = inputs(pair[0]), pair[1]
        if not isinstance(y, Tensor):
            raise UnseenError(
                "the loader must yield y as a tensor of class indices, "
                f"it yielded {describe_type(y)}"
            )
        if y.dim() == 0:
            raise UnseenError(
                "the loader must yield batches, it yielded a single sample: put the data set into "
                "a torch.utils.data.DataLoader"
            )
        if len(y) != len(x[0]):
            raise UnseenError(f"a batch has {len(x[0])} inputs and {len(y)} labels")
        if len(y) == 0:
            raise UnseenError("a batch is empty: it needs at least one sample")
        check_finite(x)
        keep = y.is_floating_point() or y.is_complex() or y.dtype == torch.bool
        return CheckedBatch(x, y if keep else y.long())

    def to(self, device: torch.device | str) -> Batch:
        """Move inputs and targets to a device."""
        return self._replace(x=tuple(t.to(device) for t in self.x), y=self.y.to(device))


class CheckedBatch(Batch):
    """A batch that `Batch.of` has checked; a step need not check it again."""

    __slots__ = ()


def _remedy(pair: Any) -> str:
    if isinstance(pair, dict):
        return ': name the entries, as in [(b["image"], b["label"]) for b in loader]'
    if isinstance(pair, Tensor):
        return ": one batch is given as [(x, y)]"
    return ""


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


def inference_batch_size(x: tuple[Tensor, ...]) -> int:
    """Return how many samples like these to pass at once where no gradient is kept."""
    numbers = sum(t[0].numel() for t in x)
    return max(1, min(MAX_BATCH_SIZE, MAX_BATCH_NUMBERS // max(1, numbers)))
