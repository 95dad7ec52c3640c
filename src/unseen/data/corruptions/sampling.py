"""Resampling of 32x32 images: gather, border modes, bilinear interpolation, zoom."""

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


def take_pixels(images: NDArray[Any], rows: Index, columns: Index) -> NDArray[Any]:
    """Gather pixels of images (N, 32, 32, C) at rows and columns that broadcast to (N, 32, 32)."""
    first = np.arange(len(images))[:, None, None] * SIDE**2
    return images.reshape(-1, images.shape[-1]).take(first + rows * SIDE + columns, axis=0)


def clamp(index: Index) -> Index:
    """Repeat the border: a a a | a b c."""
    return np.clip(index, 0, SIDE - 1)


def mirror(index: Index) -> Index:
    """Mirror at the outermost pixel: c b | a b c (OpenCV's default)."""
    phase = index % (2 * SIDE - 2)
    return np.minimum(phase, 2 * SIDE - 2 - phase)


def reflect(index: Index) -> Index:
    """Mirror at the edge: b a | a b c (scipy's `reflect`)."""
    phase = index % (2 * SIDE)
    return np.minimum(phase, 2 * SIDE - 1 - phase)


def bilinear(
    images: Floats, rows: NDArray, columns: NDArray, border: Callable[[Index], Index]
) -> Floats:
    """Interpolate images (N, 32, 32, C) at fractional rows and columns (N, 32, 32)."""
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]
    above, below, before, behind = border(top), border(top + 1), border(left), border(left + 1)
    upper = (
        take_pixels(images, above, before) * (1 - right)
        + take_pixels(images, above, behind) * right
    )
    lower = (
        take_pixels(images, below, before) * (1 - right)
        + take_pixels(images, below, behind) * right
    )
    return upper * (1 - down) + lower * down


def zoom_matrix(factor: float) -> Floats:
    """Return the matrix (32, 32) that enlarges the centre of 32 values by linear interpolation.

    As scipy.ndimage.zoom: the first and last values stay first and last, and sizes are rounded.
    """
    crop = math.ceil(SIDE / factor)
    size = round(crop * factor)
    at = (SIDE - crop) // 2 + ((size - SIDE) // 2 + np.arange(SIDE)) * (crop - 1) / (size - 1)
    left = np.minimum(np.floor(at).astype(np.int64), SIDE - 2)
    matrix = np.zeros((SIDE, SIDE), np.float32)
    matrix[np.arange(SIDE), left] = 1 - (at - left)
    matrix[np.arange(SIDE), left + 1] = at - left
    return matrix
