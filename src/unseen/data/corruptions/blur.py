"""Blur: defocus, glass, motion, zoom, Gaussian. Parameters from make_cifar_c.py."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate, gaussian_filter

from unseen.data.corruptions.sampling import (
    COLUMNS,
    ROWS,
    SIDE,
    Bytes,
    Floats,
    Index,
    clamp,
    take_pixels,
    zoom_matrix,
)

_ZOOM_ENDS = (1.06, 1.11, 1.16, 1.21, 1.26)


def defocus_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Convolve with a disk."""
    radius, softness = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    kernel = soft_disk(radius, softness).astype(np.float32)
    return correlate(images.astype(np.float32), kernel[None, :, :, None], mode="mirror")


def soft_disk(radius: float, softness: float) -> NDArray[np.float64]:
    """Return a 5x5 disk kernel with sum 1, smoothed by a 3x3 Gaussian."""
    place = np.arange(-2, 3)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).astype(np.float64)
    rim = np.exp(-np.array([1, 0, 1]) / (2 * softness**2))
    return correlate(disk / disk.sum(), np.outer(rim, rim) / rim.sum() ** 2, mode="constant")


def glass_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Blur, displace neighbouring pixels, blur again."""
    sigma, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    glass = _gaussian(images, sigma).astype(np.uint8)
    for _ in range(rounds):
        # The published range is 1 with an exclusive upper end: -1 or 0.
        glass = displace(glass, *rng.integers(-1, 1, (2, len(images), SIDE, SIDE)))
    return _gaussian(glass, sigma)


def displace(images: Bytes, down: Index, right: Index) -> Bytes:
    """Copy to each pixel, from the third row and column on, a neighbour above or to the left.

    The published code intends a swap, from the last pixel backwards, but swaps views of one array,
    which copies in one direction only. The copied pixel is always unchanged: one gather suffices.
    """
    moved = take_pixels(images, clamp(ROWS + down), clamp(COLUMNS + right))
    out = images.copy()
    out[:, 2:, 2:] = moved[:, 2:, 2:]
    return out


def motion_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Blur along a line up to 45 degrees from the horizontal."""
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    return directional_blur(images, radius, sigma, rng.uniform(-45, 45, len(images)))


def directional_blur(
    images: Bytes, radius: int, sigma: float, angles: NDArray[np.float64]
) -> Floats:
    """Apply ImageMagick's motion blur to images (N, 32, 32, C), rounded to integers.

    Each pixel becomes the weighted mean of 2 * radius + 1 pixels on a line that starts at it; the
    weights are half a Gaussian.
    """
    step = np.arange(2 * radius + 1)
    weights = np.exp(-(step**2) / (2 * sigma**2))
    weights = weights / weights.sum()
    down = np.ceil(np.sin(np.radians(angles))[:, None] * step - 0.5).astype(np.int64)
    right = np.ceil(np.cos(np.radians(angles))[:, None] * step - 0.5).astype(np.int64)
    out = np.zeros(images.shape, np.float32)
    for k in np.flatnonzero(weights > 1e-6):  # smaller weights change less than half a grey level
        rows = clamp(ROWS + down[:, k, None, None])
        columns = clamp(COLUMNS + right[:, k, None, None])
        out += np.float32(weights[k]) * take_pixels(images, rows, columns)
    return np.rint(out)


def zoom_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Average increasingly enlarged copies of the image."""
    # One column per image and colour.
    pixels = images.astype(np.float32).transpose(1, 2, 0, 3).reshape(SIDE**2, -1)
    blurred = _mean_zoom_matrix(_ZOOM_ENDS[severity - 1]) @ pixels
    return blurred.reshape(SIDE, SIDE, len(images), -1).transpose(2, 0, 1, 3)


@cache
def _mean_zoom_matrix(end: float) -> Floats:
    """Return the matrix (1024, 1024) that averages all enlarged copies."""
    factors = np.arange(1, end, 0.01)  # as published: rounding includes the end
    copies = [zoom_matrix(float(factor)) for factor in factors]
    total = sum((np.kron(copy, copy) for copy in copies), np.eye(SIDE**2, dtype=np.float32))
    return total / np.float32(len(copies) + 1)


def gaussian_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Convolve with a Gaussian."""
    return _gaussian(images, (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1])


def _gaussian(images: Bytes, sigma: float) -> Floats:
    return gaussian_filter(images.astype(np.float32), (0, sigma, sigma, 0), mode="nearest")
