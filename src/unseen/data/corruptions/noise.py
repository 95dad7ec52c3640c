"""Noise: Gaussian, shot, impulse, speckle. Parameters from make_cifar_c.py."""

from __future__ import annotations

import numpy as np

from unseen.data.corruptions.sampling import Bytes, Floats


def gaussian_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Add Gaussian noise."""
    sigma = 255 * (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return images + np.float32(sigma) * rng.standard_normal(images.shape, dtype=np.float32)


def shot_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Draw Poisson noise, as of photon counts."""
    photons = (500, 250, 100, 75, 50)[severity - 1]  # of a white pixel
    return rng.poisson(images * (photons / 255)).astype(np.float32) * np.float32(255 / photons)


def impulse_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Bytes:
    """Set random values to 0 or 255, per channel."""
    probability = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    draw = rng.random(images.shape, dtype=np.float32)
    return np.where(draw < probability / 2, 0, np.where(draw < probability, 255, images)).astype(
        np.uint8
    )


def speckle_noise(images: Bytes, severity: int, rng: np.random.Generator) -> Floats:
    """Multiply with Gaussian noise."""
    sigma = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    return images * (1 + np.float32(sigma) * rng.standard_normal(images.shape, dtype=np.float32))
