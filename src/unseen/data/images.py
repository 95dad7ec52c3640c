"""Images in memory, and what goes wrong when one is read."""

from __future__ import annotations

import struct
from typing import Any

from PIL import Image
from torch import Tensor
from torch.utils.data import TensorDataset

# What Pillow raises for a damaged file; a broken PNG is a SyntaxError.
UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    struct.error,
    Image.DecompressionBombError,
)


class ByteImages(TensorDataset):
    """Images stored as uint8 and returned as floats in 0..1."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float() / 255, y
