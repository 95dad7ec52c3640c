"""Digital: contrast, elastic transform, pixelate, JPEG. Parameters of make_cifar_c.py (see the package)."""

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
    between_pixels,
    mirrored,
    reflected,
)

# Per severity, in pixels: amplitude and smoothness of the displacement, and how far the affine part may move its three points.
# As published the affine part shrinks while the displacement grows.
ELASTIC = (
    (0.0, 0.0, 2.56),
    (1.6, 6.4, 2.24),
    (2.56, 1.92, 1.92),
    (3.2, 1.28, 1.6),
    (3.2, 0.96, 0.96),
)


def contrast(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Flat light: every colour nearer to its mean over the image."""
    kept = np.float32((0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1])
    means = images.mean(axis=(1, 2), keepdims=True, dtype=np.float32)
    return (images - means) * kept + means


def elastic_transform(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """A slight affine map, then small regions stretched and squeezed."""
    amplitude, smoothness, reach = ELASTIC[severity - 1]
    return stretched(tilted(images, reach, rng), amplitude, smoothness, rng)


def tilted(images: Bytes, reach: float, rng: np.random.Generator) -> Floats:
    """Each image under the affine map that moves three of its points by up to `reach` pixels each way."""
    points = np.array(
        [[26.0, 26, 6], [26, 6, 6], [1, 1, 1]]
    )  # x, y, 1: a third of the side around the middle
    moved = points[:2] + rng.uniform(-reach, reach, (len(images), 2, 3))
    maps = moved @ np.linalg.inv(points)  # (N, 2, 3)
    back = np.linalg.inv(maps[:, :, :2])
    pixels = np.stack(np.broadcast_arrays(COLUMNS, ROWS)).reshape(2, -1)  # x and y of every pixel
    x, y = np.moveaxis((back @ (pixels - maps[:, :, 2:])).reshape(-1, 2, SIDE, SIDE), 1, 0)
    return between_pixels(images.astype(np.float32), y, x, mirrored)


def stretched(
    images: Floats, amplitude: float, smoothness: float, rng: np.random.Generator
) -> Floats:
    """Each pixel from up to `amplitude` pixels away, by smoothed noise."""
    noise = rng.uniform(-1, 1, (2, len(images), SIDE, SIDE))
    right, down = amplitude * gaussian_filter(
        noise, (0, 0, smoothness, smoothness), mode="reflect", truncate=3
    )
    return between_pixels(images, ROWS + down, COLUMNS + right, reflected)


def saturate(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Paler or gaudier: the saturation of HSV is scaled and raised, hue and value stay."""
    scale, more = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    value = images.max(axis=3, keepdims=True).astype(np.float32)
    lack = value - images  # of each colour, in proportion to the saturation
    saturation = lack.max(axis=3, keepdims=True) / np.maximum(value, 1)
    wanted = np.clip(scale * saturation + more, 0, 1)
    red = np.array([0, 1, 1], np.float32) * value  # grey has the hue 0
    return value - np.where(
        saturation > 0, lack * (wanted / np.maximum(saturation, 1e-6)), wanted * red
    )


def pixelate(images: Bytes, severity: int, rng: np.random.Generator) -> Bytes:
    """A lower resolution, enlarged again."""
    side = int(SIDE * (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1])
    box = Image.Resampling.BOX
    return _each(images, lambda image: image.resize((side, side), box).resize((SIDE, SIDE), box))


def jpeg_compression(images: Bytes, severity: int, rng: np.random.Generator) -> Bytes:
    """Blocks and blurred colours of a small file."""
    quality = (80, 65, 58, 50, 40)[severity - 1]

    def through_jpeg(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _each(images, through_jpeg)


def _each(images: Bytes, change: Callable[[Image.Image], Image.Image]) -> Bytes:
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in images])
