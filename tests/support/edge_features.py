"""Edge histograms of images, from which a linear classifier reads digits in any colour."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def edge_features(pixels: Tensor) -> np.ndarray:
    """Return the edge strength per direction in each 4x4 cell; colours do not matter."""
    down, across = np.gradient(pixels.float().mean(1).numpy(), axis=(1, 2))
    direction = np.floor((np.arctan2(down, across) % np.pi) * 8 / np.pi).clip(0, 7)
    edges = np.hypot(down, across)[:, None] * (direction[:, None] == np.arange(8)[:, None, None])
    cells = edges.reshape(len(pixels), 8, 8, 4, 8, 4).sum((3, 5)).reshape(len(pixels), -1)
    return np.sqrt(cells / cells.sum(1, keepdims=True))
