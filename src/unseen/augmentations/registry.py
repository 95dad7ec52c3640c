"""The augmentations by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unseen.augmentations.auto_augment import autoaugment
from unseen.augmentations.cut_out import cutout
from unseen.augmentations.flip_and_crop import flip_crop
from unseen.augmentations.own_kernels import random_kernel
from unseen.augmentations.random_affine import affine
from unseen.augmentations.random_convolution import randconv
from unseen.augmentations.settings import Transform

AUGMENTATIONS: dict[str, Transform] = {
    "cutout": cutout,
    "autoaugment": autoaugment,
    "randconv": randconv,
    "flip_crop": flip_crop,
    "affine": affine,
    "random_kernel": random_kernel,
}
GEOMETRIC = ("autoaugment", "flip_crop", "affine")  # label maps would no longer match


def moves_pixels(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether an augmentation moves pixels, with these settings."""
    return name in GEOMETRIC
