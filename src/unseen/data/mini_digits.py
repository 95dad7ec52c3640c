"""mini_digits: a handwritten source and four unseen domains, generated from installed packages."""

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
    blend_with_photos,
    draw_clutter,
    draw_glyph,
    random_font,
    reduce_canvas,
    scan,
    sign_colours,
    simulate_photo,
    text_mask,
)

DOMAINS: tuple[str, ...] = ("photo", "printed", "street", "scanner")
SOURCE = "digits"
SPLITS = ("train", "val", "test")

Labels = NDArray[np.int64]

CLASSES = 10
_SEED = 1797
_SOURCE_PER_CLASS = {"train": 100, "test": 40}  # the rest is val: 34 to 43 per class, 397 in all
_POOL_PER_CLASS = 30  # labelled training images of an unseen domain
_RENDERINGS = {"train": 1, "test": 2}  # per handwritten digit
_PRINTED_PER_CLASS = {"train": _POOL_PER_CLASS, "test": 60}


def load_images(domain: str, split: str) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,) int64 of a split; deterministic.

    The source has all of `SPLITS`; an unseen domain has `test` and, for few-shot labels, `train`.
    `photo` and `scanner` render each test digit of the source twice, so their test images are not
    independent. The tensors may be changed in place.
    """
    if domain not in (SOURCE, *DOMAINS):
        raise ValueError(f"unknown domain {domain!r}; valid: {', '.join((SOURCE, *DOMAINS))}")
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; valid: {', '.join(SPLITS)}")
    if domain != SOURCE and split == "val":
        raise ValueError(f"the unseen domain {domain!r} has no val split; valid: train, test")
    pixels, labels = _generate(domain, split)
    return pixels.clone(), labels.clone()


@cache
def _generate(domain: str, split: str) -> tuple[Tensor, Tensor]:
    if domain == SOURCE:
        cells, labels = _handwriting()[split]
        grey = np.stack([np.asarray(reduce_canvas(_strokes(cell))) for cell in cells])
        pixels = np.repeat(grey[..., None], 3, axis=-1)
    else:
        rng = np.random.default_rng([_SEED, 1 + DOMAINS.index(domain), SPLITS.index(split)])
        generators = {
            "photo": _photo,
            "printed": _printed,
            "street": _street,
            "scanner": _scanner,
        }
        pixels, labels = generators[domain](split, rng)
    pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return torch.from_numpy(pixels), torch.from_numpy(labels)


@cache
def _handwriting() -> dict[str, tuple[Floats, Labels]]:
    """Return the 8x8 digits of each source split, ink from 0 to 1, and their labels.

    The split is random within each class. Writers are not known, so they may be in several splits.
    """
    rng = np.random.default_rng([_SEED, 0, 0])
    digits = load_digits()
    ends = np.cumsum([_SOURCE_PER_CLASS["train"], _SOURCE_PER_CLASS["test"]])
    shuffled = (rng.permutation(np.flatnonzero(digits.target == label)) for label in range(CLASSES))
    by_split = zip(*(np.split(members, ends) for members in shuffled), strict=True)
    parts = zip(("train", "test", "val"), by_split, strict=True)
    indices = {split: rng.permutation(np.concatenate(part)) for split, part in parts}
    # A pixel counts the ink in 4x4 pixels of the original bitmap, hence 16.
    return {
        split: (digits.images[i] / 16, digits.target[i].astype(np.int64))
        for split, i in indices.items()
    }


def _unseen_handwriting(split: str) -> tuple[Floats, Labels]:
    """Return balanced digits for an unseen domain, none of them from the source's train split."""
    cells, labels = _handwriting()["test" if split == "test" else "val"]
    if split == "train":
        per_class = [np.flatnonzero(labels == c)[:_POOL_PER_CLASS] for c in range(CLASSES)]
        pool = np.sort(np.concatenate(per_class))
        cells, labels = cells[pool], labels[pool]
    return np.tile(cells, (_RENDERINGS[split], 1, 1)), np.tile(labels, _RENDERINGS[split])


def _strokes(cell: Floats) -> Image.Image:
    """Draw an 8x8 digit on the canvas, white on black, on 3/4 of the side as in MNIST."""
    scale = 6  # 8 cells * 6 = 48 of 64
    margin = (CANVAS - 10 * scale) // 2
    # A border makes the ends of strokes round.
    bordered = Image.fromarray(np.pad(np.rint(cell * 255).astype(np.uint8), 1))
    smooth = np.asarray(
        bordered.resize((10 * scale, 10 * scale), Image.Resampling.BICUBIC), dtype=np.float64
    )
    # Edges are grey ramps one cell wide; a steeper ramp looks more like a pen.
    crisp = np.clip((smooth - 50) / 160, 0, 1) * 255
    return Image.fromarray(np.pad(np.rint(crisp).astype(np.uint8), margin))


def _shuffled_labels(split: str, rng: np.random.Generator) -> Labels:
    return rng.permutation(np.repeat(np.arange(CLASSES, dtype=np.int64), _PRINTED_PER_CLASS[split]))


def _photo(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Like MNIST-M: the absolute difference of a photo patch and a digit."""
    cells, labels = _unseen_handwriting(split)
    digits = np.stack([np.asarray(reduce_canvas(_strokes(cell))) for cell in cells])
    return blend_with_photos(digits, rng), labels


def _printed(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Like SYN: a printed digit of any font, size, position and colour, over clutter."""
    labels = _shuffled_labels(split, rng)
    rendered = []
    for label in labels:
        canvas, ink = draw_clutter(rng)
        font = random_font(rng, 44, 70)  # digits about 30 to 50 of 64 high
        mask = text_mask(str(label), font, tuple(CENTRE + rng.uniform(-7, 7, 2)))
        rendered.append(draw_glyph(canvas, ink, mask, rng))
    return np.stack(rendered), labels


def _street(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Like SVHN: the middle digit of a house number in a poor photograph."""
    labels = _shuffled_labels(split, rng)
    rendered = []
    for label in labels:
        ink, plate = sign_colours(rng)
        font = random_font(rng, 58, 76)
        mask = text_mask(str(label), font, (CENTRE, CENTRE))
        left, top, right, bottom = font.getbbox(str(label))
        reach, line_top = (right - left) / 2 + rng.uniform(-3, 2), CENTRE - (top + bottom) / 2
        before, after = (str(digit) for digit in rng.integers(0, CLASSES, 2))
        draw = ImageDraw.Draw(mask)
        draw.text((CENTRE - reach - font.getbbox(before)[2], line_top), before, fill=255, font=font)
        draw.text((CENTRE + reach - font.getbbox(after)[0], line_top), after, fill=255, font=font)
        rendered.append(simulate_photo(mask, ink, plate, rng))
    return np.stack(rendered), labels


def _scanner(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Like USPS: another pen, tight crop, slant, and a scan at 16x16."""
    cells, labels = _unseen_handwriting(split)
    rendered = [scan(_strokes(cell), rng) for cell in cells]
    return np.repeat(np.stack(rendered)[..., None], 3, axis=-1), labels
