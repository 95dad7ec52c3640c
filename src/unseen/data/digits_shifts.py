"""Synthetic shifts of held-out MNIST, to choose the settings of `digits` by without a look at its unseen domains."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from unseen.data.digits import Array, Labels, originals, resized
from unseen.data.drawing import (
    CANVAS,
    CENTRE,
    cluttered_paper,
    inked,
    over_photos,
    photographed,
    scanned,
    street_colours,
)
from unseen.data.location import data_root, remedy
from unseen.errors import UnseenError

DOMAINS: tuple[str, ...] = ("photo", "printed", "street", "scanner", "inverted")
FIRST, END = (
    11_000,
    12_000,
)  # of MNIST's training images: trained on are 0 to 9,999, 10,000 to 10,999 calibrate the alarm
_SEED = 11_000  # any constant would do


def images(domain: str) -> tuple[Tensor, Tensor]:
    """Images (1000, 3, 32, 32) uint8 and labels (1000,) int64 of one shift, the same bits at every call."""
    if domain not in DOMAINS:
        raise UnseenError(f"no shift {domain!r}; there are: {', '.join(DOMAINS)}")
    pixels, labels = _cached(domain, data_root())
    return pixels.clone(), labels.clone()


@cache
def _cached(domain: str, root: Path) -> tuple[Tensor, Tensor]:
    digits, labels = _held_out(root)
    rng = np.random.default_rng([_SEED, DOMAINS.index(domain)])
    make = {
        "photo": _photo,
        "printed": _printed,
        "street": _street,
        "scanner": _scanner,
        "inverted": _inverted,
    }[domain]
    pixels = make(digits, rng)
    if pixels.ndim == 3:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))), torch.from_numpy(
        labels
    )


@cache
def _held_out(root: Path) -> tuple[Array, Labels]:
    digits, labels = originals("mnist", "train")
    if len(labels) < END:
        held = f"{root} holds {len(labels)} MNIST training images"
        raise UnseenError(
            f"{held}; the shifts are made of those from {FIRST} to {END - 1}: {remedy('digits')}"
        )
    return digits[FIRST:END], labels[FIRST:END]


def _photo(digits: Array, rng: np.random.Generator) -> Array:
    """After MNIST-M."""
    return over_photos(resized(digits, Image.Resampling.LANCZOS), rng)


def _printed(digits: Array, rng: np.random.Generator) -> Array:
    """After SYN: of any size, place and colour, over clutter."""
    rendered = []
    for digit in digits:
        canvas, ink = cluttered_paper(rng)
        mask = Image.new("L", (CANVAS, CANVAS))
        glyph = _cut_out(digit, height=int(rng.integers(32, 52)), rng=rng)
        _put(mask, glyph, *(CENTRE + rng.uniform(-7, 7, 2)))
        rendered.append(inked(canvas, ink, mask, rng))
    return np.stack(rendered)


def _street(digits: Array, rng: np.random.Generator) -> Array:
    """After SVHN: between two neighbours on a house number, badly photographed."""
    rendered = []
    for digit in digits:
        ink, plate = street_colours(rng)
        height = int(rng.integers(44, 56))
        middle, before, after = (
            _cut_out(d, height, rng) for d in (digit, *digits[rng.integers(0, len(digits), 2)])
        )
        mask = Image.new("L", (CANVAS, CANVAS))
        reach = middle.width / 2 + rng.uniform(-1, 4)
        _put(mask, before, CENTRE - reach - before.width / 2, CENTRE)
        _put(mask, after, CENTRE + reach + after.width / 2, CENTRE)
        _put(mask, middle, CENTRE, CENTRE)
        rendered.append(photographed(mask, ink, plate, rng))
    return np.stack(rendered)


def _scanner(digits: Array, rng: np.random.Generator) -> Array:
    """After USPS."""
    return np.stack(
        [
            scanned(Image.fromarray(d).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC), rng)
            for d in digits
        ]
    )


def _inverted(digits: Array, rng: np.random.Generator) -> Array:
    """Dark on light, as on paper."""
    coverage = resized(digits, Image.Resampling.LANCZOS) / 255
    shape = (len(digits), 1, 1)
    paper, ink = rng.uniform(180, 255, shape), rng.uniform(0, 80, shape)
    return np.rint(paper + (ink - paper) * coverage).astype(np.uint8)


def _cut_out(digit: Array, height: int, rng: np.random.Generator) -> Image.Image:
    """The glyph alone at that height, its stroke as thin as it is or as thick as a bold font's."""
    mask = Image.fromarray(digit)
    mask = mask.crop(mask.getbbox())
    width = max(4, round(mask.width * height / mask.height))
    if width > 44:  # a flat digit: keep it in the frame
        width, height = 44, round(height * 44 / width)
    large = np.pad(np.asarray(mask.resize((width, height), Image.Resampling.BICUBIC)), 2)
    return Image.fromarray(large).filter(ImageFilter.MaxFilter(int(rng.choice([1, 3, 5]))))


def _put(canvas: Image.Image, glyph: Image.Image, x: float, y: float) -> None:
    """The glyph's middle at that point; ink covers, what is around it does not."""
    corner = (round(x - glyph.width / 2), round(y - glyph.height / 2))
    canvas.paste(255, corner, glyph)
