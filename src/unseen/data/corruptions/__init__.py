"""The 15 corruptions of CIFAR-10-C at five severities, deterministic for a given seed.

Operations and parameters are those of make_cifar_c.py in github.com/hendrycks/robustness (Hendrycks
and Dietterich, ICLR 2019), vectorised over images. The published random draws cannot be repeated,
so the pixels differ from the published sets.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unseen.data.corruptions.blur import (
    defocus_blur,
    gaussian_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
)
from unseen.data.corruptions.digital import (
    contrast,
    elastic_transform,
    jpeg_compression,
    pixelate,
    saturate,
)
from unseen.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from unseen.data.corruptions.sampling import SIDE, Bytes
from unseen.data.corruptions.weather import brightness, fog, frost, snow
from unseen.errors import UnseenError

# (uint8 images (N, 32, 32, 3), severity 1 to 5, generator) -> images before clipping to 0..255.
Corruption = Callable[[Bytes, int, np.random.Generator], NDArray]

GROUPS: dict[str, dict[str, Corruption]] = {
    "noise": {
        "gaussian_noise": gaussian_noise,
        "shot_noise": shot_noise,
        "impulse_noise": impulse_noise,
    },
    "blur": {
        "defocus_blur": defocus_blur,
        "glass_blur": glass_blur,
        "motion_blur": motion_blur,
        "zoom_blur": zoom_blur,
    },
    "weather": {"snow": snow, "frost": frost, "fog": fog, "brightness": brightness},
    "digital": {
        "contrast": contrast,
        "elastic_transform": elastic_transform,
        "pixelate": pixelate,
        "jpeg_compression": jpeg_compression,
    },
}
CORRUPTIONS: dict[str, Corruption] = {
    name: corruption for group in GROUPS.values() for name, corruption in group.items()
}
# Published for tuning, not part of the benchmark; the fourth, spatter, is left out.
EXTRA: dict[str, Corruption] = {
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "saturate": saturate,
}
SEVERITIES = (1, 2, 3, 4, 5)
VERSION = 1  # part of the cache key: increase it with every change of the pixels
BLOCK = 500  # images per generator, so that the first images do not depend on how many follow


def corrupt(images: Bytes, name: str, severity: int, seed: int = 0) -> Bytes:
    """Apply one corruption to uint8 images (N, 32, 32, 3)."""
    known = {**CORRUPTIONS, **EXTRA}
    if name not in known:
        raise UnseenError(f'no corruption "{name}"; there are: {", ".join(known)}')
    if severity not in SEVERITIES:
        raise UnseenError(
            f"severity must be one of {', '.join(map(str, SEVERITIES))}, not {severity!r}"
        )
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (SIDE, SIDE, 3):
        raise UnseenError(
            f"corruptions need images (N, 32, 32, 3) of uint8, not {images.shape} of {images.dtype}"
        )
    images = np.ascontiguousarray(images)
    out = np.empty_like(images)
    for start in range(0, len(images), BLOCK):
        part = slice(start, start + BLOCK)
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), severity, start])
        values = known[name](images[part], severity, rng)
        out[part] = np.clip(values, 0, 255).astype(np.uint8)  # truncated, as in the published sets
    return out
