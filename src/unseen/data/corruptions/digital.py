"""Digital: contrast, elastic transform, pixelate, JPEG, saturate. From make_cifar_c.py."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from unseen.data.corruptions.sampling import (
    COLUMNS,
    ROWS,
    SIDE,
    Bytes,
    Floats,
    bilinear,
    mirror,
    reflect,
)

# Per severity, in pixels: amplitude and smoothness of the displacement, and the largest shift of
# the points of the affine map. As published, the affine part shrinks as the displacement grows.
ELASTIC = (
    (0.0, 0.0, 2.56),
    (1.6, 6.4, 2.24),
    (2.56, 1.92, 1.92),
    (3.2, 1.28, 1.6),
    (3.2, 0.96, 0.96),
)


def contrast(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Move every channel towards its mean over the image."""
    factor = np.float32((0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1])
    means = images.mean(axis=(1, 2), keepdims=True, dtype=np.float32)
    return (images - means) * factor + means


def elastic_transform(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Apply a random affine map, then a smooth random displacement."""
    amplitude, smoothness, shift = ELASTIC[severity - 1]
    return random_displacement(random_affine(images, shift, rng), amplitude, smoothness, rng)


def random_affine(images: Bytes, shift: float, rng: np.random.Generator) -> Floats:
    """Apply an affine map that moves three points by up to `shift` pixels in each direction."""
    # Homogeneous x, y, 1: a third of the side around the centre.
    points = np.array([[26.0, 26, 6], [26, 6, 6], [1, 1, 1]])
    moved = points[:2] + rng.uniform(-shift, shift, (len(images), 2, 3))
    maps = moved @ np.linalg.inv(points)  # (N, 2, 3)
    inverse = np.linalg.inv(maps[:, :, :2])
    pixels = np.stack(np.broadcast_arrays(COLUMNS, ROWS)).reshape(2, -1)  # x and y of every pixel
    x, y = np.moveaxis((inverse @ (pixels - maps[:, :, 2:])).reshape(-1, 2, SIDE, SIDE), 1, 0)
    return bilinear(images.astype(np.float32), y, x, mirror)


def random_displacement(
    images: Floats, amplitude: float, smoothness: float, rng: np.random.Generator
) -> Floats:
    """Displace pixels by smoothed noise of the given amplitude."""
    noise = rng.uniform(-1, 1, (2, len(images), SIDE, SIDE))
    right, down = amplitude * gaussian_filter(
        noise, (0, 0, smoothness, smoothness), mode="reflect", truncate=3
    )
    return bilinear(images, ROWS + down, COLUMNS + right, reflect)


def saturate(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Scale and shift the HSV saturation; hue and value stay."""
    scale, offset = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    value = images.max(axis=3, keepdims=True).astype(np.float32)
    chroma = value - images  # proportional to the saturation
    saturation = chroma.max(axis=3, keepdims=True) / np.maximum(value, 1)
    target = np.clip(scale * saturation + offset, 0, 1)
    red = np.array([0, 1, 1], np.float32) * value  # grey has hue 0
    return value - np.where(
        saturation > 0, chroma * (target / np.maximum(saturation, 1e-6)), target * red
    )


def pixelate(images: Bytes, severity: int, rng: np.random.Generator) -> Bytes:
    """Reduce the resolution and enlarge again."""
    side = int(SIDE * (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1])
    box = Image.Resampling.BOX
    return _map_images(
        images, lambda image: image.resize((side, side), box).resize((SIDE, SIDE), box)
    )


def jpeg_compression(images: Bytes, severity: int, rng: np.random.Generator) -> Bytes:
    """Encode as JPEG with low quality."""
    quality = (80, 65, 58, 50, 40)[severity - 1]

    def encode(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _map_images(images, encode)


def _map_images(images: Bytes, function: Callable[[Image.Image], Image.Image]) -> Bytes:
    return np.stack([np.asarray(function(Image.fromarray(image))) for image in images])
