"""The 15 corruptions of CIFAR-10-C, made here from clean images: five severities, the same bits for the same seed.

What each does, and its parameters at each severity, are those of the maker of the published sets: make_cifar_c.py in
github.com/hendrycks/robustness (Hendrycks and Dietterich, ICLR 2019). The code is ours and works on many images at once; the
published random draws are not repeatable, so these are sets of the same kind, not the same pixels.
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

# From images (N, 32, 32, 3) of bytes, a severity from 1 to 5 and random numbers to images from 0 to 255 before clipping.
Corruption = Callable[[Bytes, int, np.random.Generator], NDArray]

GROUPS: dict[str, dict[str, Corruption]] = {
    "noise": {"gaussian_noise": gaussian_noise, "shot_noise": shot_noise, "impulse_noise": impulse_noise},
    "blur": {"defocus_blur": defocus_blur, "glass_blur": glass_blur, "motion_blur": motion_blur, "zoom_blur": zoom_blur},
    "weather": {"snow": snow, "frost": frost, "fog": fog, "brightness": brightness},
    "digital": {
        "contrast": contrast, "elastic_transform": elastic_transform, "pixelate": pixelate, "jpeg_compression": jpeg_compression,
    },
}  # fmt: skip
CORRUPTIONS: dict[str, Corruption] = {
    name: make for group in GROUPS.values() for name, make in group.items()
}
# Published beside the 15 to choose settings by, and never a part of the benchmark (the fourth, spatter, is left out).
EXTRA: dict[str, Corruption] = {
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "saturate": saturate,
}
SEVERITIES = (1, 2, 3, 4, 5)
VERSION = 1  # of what the code gives: raise it with every change of a pixel, so that no cache holds the old ones
BLOCK = (
    500  # images at a time: a few tens of MB; whole blocks are the same however many images follow
)


def corrupted(images: Bytes, name: str, severity: int, seed: int = 0) -> Bytes:
    """Images (N, 32, 32, 3) of bytes under one corruption."""
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
    made = np.empty_like(images)
    for start in range(0, len(images), BLOCK):
        part = slice(start, start + BLOCK)
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), severity, start])
        values = known[name](images[part], severity, rng)
        made[part] = np.clip(values, 0, 255).astype(
            np.uint8
        )  # cut, not rounded, as the published sets are
    return made
