"""The embedded digits benchmark: one handwritten source and four unseen domains, made from installed packages."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from torch import Tensor

from unseen.data.drawing import (
    CANVAS,
    CENTRE,
    Array,
    Floats,
    any_font,
    cluttered_paper,
    inked,
    over_photos,
    photographed,
    reduced,
    scanned,
    street_colours,
    text_mask,
)

DOMAINS: tuple[str, ...] = ("photo", "printed", "street", "scanner")
SOURCE = "digits"
SPLITS = ("train", "val", "test")

Labels = NDArray[np.int64]

CLASSES = 10
_SEED = 1797  # the number of scikit-learn's digits; any constant would do
_SOURCE_PER_CLASS = {
    "train": 100,
    "test": 40,
}  # `val` is the rest: 34 to 43 of each class, 397 in all
_POOL_PER_CLASS = (
    30  # the labelled pool of an unseen domain; the rarest class has 34 source-val digits
)
_RENDERINGS = {"train": 1, "test": 2}  # of each handwritten digit
_PRINTED_PER_CLASS = {"train": _POOL_PER_CLASS, "test": 60}


def images(domain: str, split: str) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) uint8 and labels (N,) int64 of one domain, the same bits at every call.

    The source has all of `SPLITS`; an unseen domain has `test` and, for few-shot labels, `train`.
    `photo` and `scanner` show each source-test digit twice, so their test images are not all independent.
    The tensors are the caller's own and may be changed in place.
    """
    if domain not in (SOURCE, *DOMAINS):
        raise ValueError(f"unknown domain {domain!r}; valid: {', '.join((SOURCE, *DOMAINS))}")
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; valid: {', '.join(SPLITS)}")
    if domain != SOURCE and split == "val":
        raise ValueError(
            f"the unseen domain {domain!r} has no val split, only the source has; valid: train, test"
        )
    pixels, labels = _cached(domain, split)
    return pixels.clone(), labels.clone()


@cache
def _cached(domain: str, split: str) -> tuple[Tensor, Tensor]:
    if domain == SOURCE:
        cells, labels = _handwriting()[split]
        grey = np.stack([np.asarray(reduced(_strokes(cell))) for cell in cells])
        pixels = np.repeat(grey[..., None], 3, axis=-1)
    else:
        rng = np.random.default_rng([_SEED, 1 + DOMAINS.index(domain), SPLITS.index(split)])
        make = {"photo": _photo, "printed": _printed, "street": _street, "scanner": _scanner}[
            domain
        ]
        pixels, labels = make(split, rng)
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))), torch.from_numpy(
        labels
    )


@cache
def _handwriting() -> dict[str, tuple[Floats, Labels]]:
    """The 8x8 digits of each source split, ink from 0 to 1, and their labels.

    Split at random within each class: the bundled data does not say who wrote what, so writers cross the splits.
    """
    rng = np.random.default_rng([_SEED, 0, 0])
    digits = load_digits()
    ends = np.cumsum([_SOURCE_PER_CLASS["train"], _SOURCE_PER_CLASS["test"]])
    shuffled = (rng.permutation(np.flatnonzero(digits.target == label)) for label in range(CLASSES))
    by_split = zip(*(np.split(indices, ends) for indices in shuffled), strict=True)
    parts = zip(("train", "test", "val"), by_split, strict=True)
    chosen = {split: rng.permutation(np.concatenate(part)) for split, part in parts}
    # A pixel counts the inked ones of 4x4 in the bitmap it came from, hence 16.
    return {
        split: (digits.images[i] / 16, digits.target[i].astype(np.int64))
        for split, i in chosen.items()
    }


def _unseen_handwriting(split: str) -> tuple[Floats, Labels]:
    """Balanced digits an unseen domain is made of: never the source's training digits."""
    cells, labels = _handwriting()["test" if split == "test" else "val"]
    if split == "train":
        kept = np.sort(
            np.concatenate([np.flatnonzero(labels == c)[:_POOL_PER_CLASS] for c in range(CLASSES)])
        )
        cells, labels = cells[kept], labels[kept]
    return np.tile(cells, (_RENDERINGS[split], 1, 1)), np.tile(labels, _RENDERINGS[split])


def _strokes(cell: Floats) -> Image.Image:
    """One 8x8 digit on the canvas, white on black, filling three quarters of it as MNIST's 20 of 28 pixels do."""
    scale = 6  # 8 cells * 6 = 48 of 64
    margin = (CANVAS - 10 * scale) // 2
    bordered = Image.fromarray(
        np.pad(np.rint(cell * 255).astype(np.uint8), 1)
    )  # so that strokes end round
    smooth = np.asarray(
        bordered.resize((10 * scale, 10 * scale), Image.Resampling.BICUBIC), dtype=np.float64
    )
    # A cell counts ink, so an edge is a grey ramp a cell wide; a steeper ramp is nearer to a pen's edge.
    crisp = np.clip((smooth - 50) / 160, 0, 1) * 255
    return Image.fromarray(np.pad(np.rint(crisp).astype(np.uint8), margin))


def _shuffled_labels(split: str, rng: np.random.Generator) -> Labels:
    return rng.permutation(np.repeat(np.arange(CLASSES, dtype=np.int64), _PRINTED_PER_CLASS[split]))


def _photo(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After MNIST-M: the absolute difference of a photo patch and a digit."""
    cells, labels = _unseen_handwriting(split)
    return over_photos(
        np.stack([np.asarray(reduced(_strokes(cell))) for cell in cells]), rng
    ), labels


def _printed(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After SYN: a printed digit of any font, size, place and colour, over clutter."""
    labels = _shuffled_labels(split, rng)
    rendered = []
    for label in labels:
        canvas, ink = cluttered_paper(rng)
        font = any_font(rng, 44, 70)  # digits about 30 to 50 of 64 high
        rendered.append(
            inked(
                canvas, ink, text_mask(str(label), font, tuple(CENTRE + rng.uniform(-7, 7, 2))), rng
            )
        )
    return np.stack(rendered), labels


def _street(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After SVHN: the middle digit of a house number, small and badly photographed."""
    labels = _shuffled_labels(split, rng)
    rendered = []
    for label in labels:
        ink, plate = street_colours(rng)
        font = any_font(rng, 58, 76)
        mask = text_mask(str(label), font, (CENTRE, CENTRE))
        left, top, right, bottom = font.getbbox(str(label))
        reach, line_top = (right - left) / 2 + rng.uniform(-3, 2), CENTRE - (top + bottom) / 2
        before, after = (str(digit) for digit in rng.integers(0, CLASSES, 2))
        draw = ImageDraw.Draw(mask)
        draw.text((CENTRE - reach - font.getbbox(before)[2], line_top), before, fill=255, font=font)
        draw.text((CENTRE + reach - font.getbbox(after)[0], line_top), after, fill=255, font=font)
        rendered.append(photographed(mask, ink, plate, rng))
    return np.stack(rendered), labels


def _scanner(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After USPS: digits of another pen, cropped tight, slanted and scanned at 16x16 on paper that is not black."""
    cells, labels = _unseen_handwriting(split)
    rendered = [scanned(_strokes(cell), rng) for cell in cells]
    return np.repeat(np.stack(rendered)[..., None], 3, axis=-1), labels
