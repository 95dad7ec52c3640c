"""Weather: snow, frost, fog, brightness. Parameters from make_cifar_c.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.data.corruptions.blur import directional_blur
from unseen.data.corruptions.sampling import SIDE, Bytes, Floats, zoom_matrix
from unseen.data.location import MissingData, data_root
from unseen.errors import UnseenError

# The published code lists a sixth overlay but draws from the first five only.
OVERLAYS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_GREY = np.array([0.299, 0.587, 0.114], np.float32)  # OpenCV's weights of red, green and blue


def snow(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Whiten the scene and add streaks of snowflakes."""
    mean, std, size, threshold, radius, sigma, weight = (
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    )[severity - 1]
    enlarge = zoom_matrix(size)
    flakes = (
        enlarge @ rng.normal(mean, std, (len(images), SIDE, SIDE)).astype(np.float32) @ enlarge.T
    )
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1) * 255
    streaks = directional_blur(
        flakes.astype(np.uint8)[..., None], radius, sigma, rng.uniform(-135, -45, len(images))
    )
    whiter = np.maximum(images, (images @ _GREY)[..., None] * 1.5 + 127.5)
    scene = weight * images.astype(np.float32) + (1 - weight) * whiter
    return scene + streaks + streaks[:, ::-1, ::-1]


def frost(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Add ice crystals from the published photographs."""
    return add_overlays(images, severity, rng, load_overlays(frost_folder()))


def add_overlays(
    images: Bytes, severity: int, rng: np.random.Generator, ice: tuple[Bytes, ...]
) -> Floats:
    """Add a random crop of a random overlay to each image."""
    scene_weight, ice_weight = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[
        severity - 1
    ]
    crops = np.empty(images.shape, np.float32)
    for i, which in enumerate(rng.integers(0, len(ice), len(images))):
        top, left = rng.integers(0, np.array(ice[which].shape[:2]) - SIDE)
        crops[i] = ice[which][top : top + SIDE, left : left + SIDE]
    return np.float32(scene_weight) * images + np.float32(ice_weight) * crops


def frost_folder() -> Path:
    """Return the folder of the frost overlays."""
    return data_root() / "cifar10" / "frost"


@cache
def load_overlays(folder: Path) -> tuple[Bytes, ...]:
    """Load the overlays as RGB, reduced by a factor of 5."""
    return tuple(_load_overlay(folder / name) for name in OVERLAYS)


def _load_overlay(path: Path) -> Bytes:
    if not path.exists():
        raise MissingData(
            f"{path} is missing: the corruption frost needs the overlays {', '.join(OVERLAYS)} in "
            f"{path.parent}; they are in ImageNet-C/create_c of github.com/hendrycks/robustness"
        )
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow: SyntaxError for a broken PNG
        raise UnseenError(
            f"{path} cannot be read as an image ({error}): download it again"
        ) from error
    # OpenCV's linear resize by 0.2 samples the middle of every five pixels.
    small = pixels[2::5, 2::5]
    if min(small.shape[:2]) <= SIDE:
        raise UnseenError(
            f"{path} is {pixels.shape[1]}x{pixels.shape[0]}: overlays must be larger than 165x165"
        )
    return small


def fog(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Add fractal fog and normalise the brightness."""
    density, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    drifts = plasma(len(images), decay, rng).astype(np.float32)[..., None]
    brightest = images.max(axis=(1, 2, 3), keepdims=True) / np.float32(255)
    return (images + 255 * density * drifts) * (brightest / (brightest + np.float32(density)))


def plasma(count: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Generate plasma fractals (count, 32, 32) in 0..1 by the diamond-square algorithm on a torus.

    Each new point is the mean of four known points plus a random offset, whose range falls with
    the square of `decay` from scale to scale.
    """
    maps = np.zeros((count, SIDE, SIDE))
    step, wobble = SIDE, 100.0

    def noisy_mean(total: NDArray[np.float64]) -> NDArray[np.float64]:
        # wobble enters twice, as published.
        return total / 4 + wobble * rng.uniform(-wobble, wobble, total.shape)

    while step >= 2:
        half = step // 2
        corners = maps[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = noisy_mean(pairs + np.roll(pairs, -1, axis=2))
        maps[:, half::step, half::step] = centres
        maps[:, ::step, half::step] = noisy_mean(
            corners + np.roll(corners, -1, axis=2) + centres + np.roll(centres, 1, axis=1)
        )
        maps[:, half::step, ::step] = noisy_mean(
            corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=2)
        )
        step, wobble = half, wobble / decay
    maps -= maps.min(axis=(1, 2), keepdims=True)
    return maps / maps.max(axis=(1, 2), keepdims=True)


def brightness(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Raise the HSV value; hue and saturation stay."""
    offset = 255 * (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value = images.max(axis=3, keepdims=True).astype(np.float32)
    raised = np.minimum(value + np.float32(offset), 255)
    # At constant hue and saturation a colour is proportional to its value; black becomes grey.
    return np.where(value > 0, images * (raised / np.maximum(value, 1)), raised)
