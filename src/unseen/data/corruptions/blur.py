"""Blur: defocus, glass, motion, zoom. Parameters of make_cifar_c.py (see the package)."""

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
    clamped,
    enlargement,
    picked,
)

_ZOOM_ENDS = (1.06, 1.11, 1.16, 1.21, 1.26)


def defocus_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Out of focus: every point becomes a disk."""
    radius, softness = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    kernel = soft_disk(radius, softness).astype(np.float32)
    return correlate(images.astype(np.float32), kernel[None, :, :, None], mode="mirror")


def soft_disk(radius: float, softness: float) -> NDArray[np.float64]:
    """A disk of at most 5x5 pixels that sums to 1, its rim softened by a Gaussian of 3x3 pixels."""
    place = np.arange(-2, 3)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).astype(np.float64)
    rim = np.exp(-np.array([1, 0, 1]) / (2 * softness**2))
    return correlate(disk / disk.sum(), np.outer(rim, rim) / rim.sum() ** 2, mode="constant")


def glass_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Frosted glass: blurred, neighbouring pixels displaced, blurred."""
    sigma, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    glass = _gaussian(images, sigma).astype(np.uint8)
    for _ in range(rounds):
        # The published reach is 1, drawn with numpy's integers, which leave out the upper end: -1 or 0.
        glass = displaced(glass, *rng.integers(-1, 1, (2, len(images), SIDE, SIDE)))
    return _gaussian(glass, sigma)


def displaced(images: Bytes, down: Index, right: Index) -> Bytes:
    """Each pixel from the third row and column on takes the colour of one up to a pixel above or to the left of it.

    The published code means to swap the two, from the last pixel backwards; but it swaps views of one array, which copies one
    way only. Going backwards the other pixel is always still unchanged, so that all copies can be made at once.
    """
    moved = picked(images, clamped(ROWS + down), clamped(COLUMNS + right))
    made = images.copy()
    made[:, 2:, 2:] = moved[:, 2:, 2:]
    return made


def motion_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """The camera moved, up to 45 degrees from the horizontal."""
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    return trailed(images, radius, sigma, rng.uniform(-45, 45, len(images)))


def trailed(images: Bytes, radius: int, sigma: float, angles: NDArray[np.float64]) -> Floats:
    """ImageMagick's motion blur of images (N, 32, 32, C), rounded to whole values as it gives bytes.

    Each pixel is the mean of those on a line of 2 * radius + 1 pixels that starts in it, with half a Gaussian as weights.
    """
    step = np.arange(2 * radius + 1)
    weights = np.exp(-(step**2) / (2 * sigma**2))
    weights = weights / weights.sum()
    down = np.ceil(np.sin(np.radians(angles))[:, None] * step - 0.5).astype(np.int64)
    right = np.ceil(np.cos(np.radians(angles))[:, None] * step - 0.5).astype(np.int64)
    made = np.zeros(images.shape, np.float32)
    for k in np.flatnonzero(weights > 1e-6):  # what is left out is far below half a grey level
        rows, columns = (
            clamped(ROWS + down[:, k, None, None]),
            clamped(COLUMNS + right[:, k, None, None]),
        )
        made += np.float32(weights[k]) * picked(images, rows, columns)
    return np.rint(made)


def zoom_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """The camera moved towards the scene: the mean of ever larger copies."""
    pixels = (
        images.astype(np.float32).transpose(1, 2, 0, 3).reshape(SIDE**2, -1)
    )  # a column for each image and colour
    blurred = _zoom_matrix(_ZOOM_ENDS[severity - 1]) @ pixels
    return blurred.reshape(SIDE, SIDE, len(images), -1).transpose(2, 0, 1, 3)


@cache
def _zoom_matrix(end: float) -> Floats:
    """Enlarging rows and columns is linear in the pixels, so the mean of all copies is one matrix (1024, 1024)."""
    factors = np.arange(1, end, 0.01)  # as published: rounding lets the end itself in
    copies = [enlargement(float(factor)) for factor in factors]
    total = sum((np.kron(copy, copy) for copy in copies), np.eye(SIDE**2, dtype=np.float32))
    return total / np.float32(len(copies) + 1)


def gaussian_blur(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Out of focus, softly."""
    return _gaussian(images, (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1])


def _gaussian(images: Bytes, sigma: float) -> Floats:
    return gaussian_filter(images.astype(np.float32), (0, sigma, sigma, 0), mode="nearest")
