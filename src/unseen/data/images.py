"""Images in memory."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.data import TensorDataset


class ByteImages(TensorDataset):
    """Images stored as uint8 and returned as floats in 0..1."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float() / 255, y
