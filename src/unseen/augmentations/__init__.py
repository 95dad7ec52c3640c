"""Batch transforms: inputs to inputs of the same shape, such as images (N, C, H, W) in 0..1.

Random numbers come from torch's global generator, whose state is part of a checkpoint, so a resumed
run repeats them. Processes that train together have a generator each.
"""

from unseen.augmentations.auto_augment import autoaugment
from unseen.augmentations.cut_out import cutout
from unseen.augmentations.flip_and_crop import flip_crop
from unseen.augmentations.own_kernels import random_kernel
from unseen.augmentations.random_affine import affine
from unseen.augmentations.random_convolution import randconv
from unseen.augmentations.registry import AUGMENTATIONS, GEOMETRIC
from unseen.augmentations.views import Augment, Views, augment_batch

__all__ = [
    "AUGMENTATIONS",
    "GEOMETRIC",
    "Augment",
    "Views",
    "affine",
    "augment_batch",
    "autoaugment",
    "cutout",
    "flip_crop",
    "randconv",
    "random_kernel",
]
