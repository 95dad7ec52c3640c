"""Batch transforms: inputs to inputs of the same shape, such as images (N, C, H, W) in 0..1.

Random numbers come from torch's global generator, whose state is part of a checkpoint, so a resumed
run repeats them. Processes that train together augment the whole batch and take their rows.
"""

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
from unseen.augmentations.registry import AUGMENTATIONS, GEOMETRIC
from unseen.augmentations.views import Augment, Views, augment_batch

__all__ = [
    "AUGMENTATIONS",
    "GEOMETRIC",
    "Augment",
    "Views",
    "affine",
    "augment_batch",
    "augmix",
    "autoaugment",
    "colour",
    "cutout",
    "flip_crop",
    "hybrid",
    "light",
    "mixup",
    "pixmix",
    "randconv",
    "random_kernel",
    "specaugment",
    "texture",
    "word_dropout",
]
