"""A batch of inputs and targets."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.nn.inputs import describe_type, inputs

MAX_BATCH_SIZE = 256  # without gradients
MAX_BATCH_NUMBERS = 4_000_000  # memory: 22 street scenes, not 256


class Batch(NamedTuple):
    """Inputs and targets. The inputs are always a tuple; a model is called as model(*x)."""

    x: tuple[Tensor, ...]
    y: Tensor

    @classmethod
    def of(cls, pair: Any) -> Batch:
        """Make a batch of what a loader yields: (x, y) or ((x1, x2, ...), y)."""
        if isinstance(pair, Batch):
            return pair
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise UnseenError(f"the loader must yield (x, y), it yielded {describe_type(pair)}")
        x, y = inputs(pair[0]), pair[1]
        if not isinstance(y, Tensor):
            raise UnseenError(
                "the loader must yield y as a tensor of class indices, "
                f"it yielded {describe_type(y)}"
            )
        return cls(x, y if y.is_floating_point() or y.dtype == torch.bool else y.long())

    def to(self, device: torch.device | str) -> Batch:
        """Move inputs and targets to a device."""
        return Batch(tuple(t.to(device) for t in self.x), self.y.to(device))


def inference_batch_size(x: tuple[Tensor, ...]) -> int:
    """Return how many samples like these to pass at once where no gradient is kept."""
    numbers = sum(t[0].numel() for t in x)
    return max(1, min(MAX_BATCH_SIZE, MAX_BATCH_NUMBERS // max(1, numbers)))
