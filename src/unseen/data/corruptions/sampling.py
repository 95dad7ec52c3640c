"""Images read at other places than their pixels: moved, between pixels, beyond the border, enlarged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Index = NDArray[np.int64]

SIDE = 32
ROWS, COLUMNS = np.arange(SIDE)[:, None], np.arange(SIDE)[None]


def picked(images: NDArray[Any], rows: Index, columns: Index) -> NDArray[Any]:
    """Pixels of images (N, 32, 32, C) at rows and columns that broadcast to (N, 32, 32); each image has its own."""
    first = np.arange(len(images))[:, None, None] * SIDE**2
    return images.reshape(-1, images.shape[-1]).take(first + rows * SIDE + columns, axis=0)


def clamped(index: Index) -> Index:
    """Beyond the border the border goes on: a a a | a b c."""
    return np.clip(index, 0, SIDE - 1)


def mirrored(index: Index) -> Index:
    """Beyond the border the image is mirrored at the outermost pixel: c b | a b c. OpenCV's default."""
    turn = index % (2 * SIDE - 2)
    return np.minimum(turn, 2 * SIDE - 2 - turn)


def reflected(index: Index) -> Index:
    """Beyond the border the image is mirrored at its edge: b a | a b c. What scipy calls reflect."""
    turn = index % (2 * SIDE)
    return np.minimum(turn, 2 * SIDE - 1 - turn)


def between_pixels(
    images: Floats, rows: NDArray, columns: NDArray, beyond: Callable[[Index], Index]
) -> Floats:
    """Images (N, 32, 32, C) at fractional rows and columns (N, 32, 32), bilinearly."""
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down, right = (
        (rows - top).astype(np.float32)[..., None],
        (columns - left).astype(np.float32)[..., None],
    )
    above, below, before, behind = beyond(top), beyond(top + 1), beyond(left), beyond(left + 1)
    upper = picked(images, above, before) * (1 - right) + picked(images, above, behind) * right
    lower = picked(images, below, before) * (1 - right) + picked(images, below, behind) * right
    return upper * (1 - down) + lower * down


def enlargement(factor: float) -> Floats:
    """The matrix (32, 32) that enlarges the middle of 32 values linearly by that factor, cut to 32 values.

    As scipy.ndimage.zoom does it: the first and last values stay the first and last, and sizes are rounded.
    """
    kept = math.ceil(SIDE / factor)
    size = round(kept * factor)
    at = (SIDE - kept) // 2 + ((size - SIDE) // 2 + np.arange(SIDE)) * (kept - 1) / (size - 1)
    left = np.minimum(np.floor(at).astype(np.int64), SIDE - 2)
    matrix = np.zeros((SIDE, SIDE), np.float32)
    matrix[np.arange(SIDE), left] = 1 - (at - left)
    matrix[np.arange(SIDE), left + 1] = at - left
    return matrix
