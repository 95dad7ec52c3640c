"""Noise: gaussian, shot, impulse, speckle. Parameters of make_cifar_c.py (see the package)."""

from __future__ import annotations

import numpy as np

from unseen.data.corruptions.sampling import Bytes, Floats


def gaussian_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Low light: the same spread of noise everywhere."""
    spread = 255 * (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images + np.float32(spread) * rng.standard_normal(images.shape, dtype=np.float32)


def shot_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Light comes in photons: bright places vary more."""
    photons = (500, 250, 100, 75, 50)[severity - 1]  # of a white pixel
    return rng.poisson(images * (photons / 255)).astype(np.float32) * np.float32(255 / photons)


def impulse_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Bytes:
    """Salt and pepper, in each colour by itself."""
    chance = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    draw = rng.random(images.shape, dtype=np.float32)
    return np.where(draw < chance / 2, 0, np.where(draw < chance, 255, images)).astype(np.uint8)


def speckle_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Noise in proportion to the light."""
    spread = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    return images * (1 + np.float32(spread) * rng.standard_normal(images.shape, dtype=np.float32))
