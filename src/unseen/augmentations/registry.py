"""The augmentations by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.augmentations.auto_augment import autoaugment
from unseen.augmentations.cut_out import cutout
from unseen.augmentations.dropped_words import word_dropout
from unseen.augmentations.flip_and_crop import flip_crop
from unseen.augmentations.hybrid_images import hybrid
from unseen.augmentations.masked_spectrograms import specaugment
from unseen.augmentations.mixed_chains import augmix
from unseen.augmentations.mixed_sounds import mixup
from unseen.augmentations.own_kernels import random_kernel
from unseen.augmentations.photometry import colour, light
from unseen.augmentations.random_affine import affine
from unseen.augmentations.random_convolution import randconv
from unseen.augmentations.random_texture import pixmix, texture
from unseen.augmentations.settings import Transform

AUGMENTATIONS: dict[str, Transform] = {
    "cutout": cutout,
    "autoaugment": autoaugment,
    "randconv": randconv,
    "flip_crop": flip_crop,
    "affine": affine,
    "random_kernel": random_kernel,
    "texture": texture,
    "pixmix": pixmix,
    "augmix": augmix,
    "hybrid": hybrid,
    "colour": colour,
    "light": light,
    "specaugment": specaugment,
    "mixup": mixup,
    "word_dropout": word_dropout,
}
GEOMETRIC = ("autoaugment", "flip_crop", "affine")  # label maps would no longer match


def moves_pixels(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether an augmentation moves pixels, with these settings."""
    if name == "augmix":
        return bool(settings.get("geometry", True))
    if name == "hybrid":
        return settings.get("mode") == "single" and bool(settings.get("geometry", True))
    return name in GEOMETRIC or name == "mixup"  # a mixture has the objects of two label maps
