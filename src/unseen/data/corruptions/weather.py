"""Weather: snow, frost, fog, brightness. Parameters of make_cifar_c.py (see the package)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.data.corruptions.blur import trailed
from unseen.data.corruptions.sampling import SIDE, Bytes, Floats, enlargement
from unseen.data.location import MissingData, data_root
from unseen.errors import UnseenError

# The published maker lists a sixth overlay, but draws among the first five only.
OVERLAYS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_GREY = np.array([0.299, 0.587, 0.114], np.float32)  # OpenCV's weights of red, green and blue


def snow(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """A whiter scene behind flakes that fall in streaks."""
    mean, spread, size, least, radius, sigma, kept = (
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    )[severity - 1]
    enlarge = enlargement(size)
    flakes = (
        enlarge @ rng.normal(mean, spread, (len(images), SIDE, SIDE)).astype(np.float32) @ enlarge.T
    )
    flakes = np.clip(np.where(flakes < least, 0, flakes), 0, 1) * 255
    streaks = trailed(
        flakes.astype(np.uint8)[..., None], radius, sigma, rng.uniform(-135, -45, len(images))
    )
    whiter = np.maximum(images, (images @ _GREY)[..., None] * 1.5 + 127.5)
    return kept * images.astype(np.float32) + (1 - kept) * whiter + streaks + streaks[:, ::-1, ::-1]


def frost(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Ice crystals on the lens, from the photographs that the published sets are made with."""
    return frosted(images, severity, rng, overlays(frost_folder()))


def frosted(
    images: Bytes, severity: int, rng: np.random.Generator, ice: tuple[Bytes, ...]
) -> Floats:
    """A random piece of a random overlay added to each image."""
    scene, crystals = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    pieces = np.empty(images.shape, np.float32)
    for i, which in enumerate(rng.integers(0, len(ice), len(images))):
        top, left = rng.integers(0, np.array(ice[which].shape[:2]) - SIDE)
        pieces[i] = ice[which][top : top + SIDE, left : left + SIDE]
    return np.float32(scene) * images + np.float32(crystals) * pieces


def frost_folder() -> Path:
    return data_root() / "cifar10" / "frost"


@cache
def overlays(folder: Path) -> tuple[Bytes, ...]:
    """The overlays in a fifth of their size, as RGB."""
    return tuple(_overlay(folder / name) for name in OVERLAYS)


def _overlay(path: Path) -> Bytes:
    if not path.exists():
        raise MissingData(
            f"{path} is missing: the corruption frost needs the overlays {', '.join(OVERLAYS)} in {path.parent}; "
            "they are in ImageNet-C/create_c of github.com/hendrycks/robustness"
        )
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow says SyntaxError of a broken PNG
        raise UnseenError(f"{path} cannot be read as a picture ({error}): get it again") from error
    # OpenCV's linear resize by 0.2 falls on the middle one of every five pixels.
    small = pixels[2::5, 2::5]
    if min(small.shape[:2]) <= SIDE:
        raise UnseenError(
            f"{path} is {pixels.shape[1]}x{pixels.shape[0]}: an overlay must be larger than 165x165"
        )
    return small


def fog(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Drifts of white."""
    density, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    drifts = plasma(len(images), decay, rng).astype(np.float32)[..., None]
    brightest = images.max(axis=(1, 2, 3), keepdims=True) / np.float32(255)
    return (images + 255 * density * drifts) * (brightest / (brightest + np.float32(density)))


def plasma(count: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Cloud-like maps (count, 32, 32) from 0 to 1 by the diamond-square algorithm on a torus.

    Each new point is the mean of four known ones, and a random shift whose reach falls with the square of `decay` from one
    scale to the next.
    """
    maps = np.zeros((count, SIDE, SIDE))
    step, reach = SIDE, 100.0

    def shifted_mean(total: NDArray[np.float64]) -> NDArray[np.float64]:
        return total / 4 + reach * rng.uniform(
            -reach, reach, total.shape
        )  # the square of reach, as published

    while step >= 2:
        half = step // 2
        corners = maps[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = shifted_mean(pairs + np.roll(pairs, -1, axis=2))
        maps[:, half::step, half::step] = centres
        maps[:, ::step, half::step] = shifted_mean(
            corners + np.roll(corners, -1, axis=2) + centres + np.roll(centres, 1, axis=1)
        )
        maps[:, half::step, ::step] = shifted_mean(
            corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=2)
        )
        step, reach = half, reach / decay
    maps -= maps.min(axis=(1, 2), keepdims=True)
    return maps / maps.max(axis=(1, 2), keepdims=True)


def brightness(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """More light: the value of HSV is raised, hue and saturation stay."""
    more = 255 * (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    value = images.max(axis=3, keepdims=True).astype(np.float32)
    raised = np.minimum(value + np.float32(more), 255)
    # At constant hue and saturation a colour is proportional to its value; black has no hue and becomes grey.
    return np.where(value > 0, images * (raised / np.maximum(value, 1)), raised)
