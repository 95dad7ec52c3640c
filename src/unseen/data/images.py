"""Images in memory."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.data import TensorDataset


class Pictures(TensorDataset):
    """Images kept as bytes and given as floats from 0 to 1: a quarter of the memory."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float() / 255, y
