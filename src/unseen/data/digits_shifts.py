"""Synthetic shifts of held-out MNIST, for tuning `digits`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from unseen.data.digits import Array, Labels, read_original, resize
from unseen.data.drawing import (
    CANVAS,
    CENTRE,
    blend_with_photos,
    draw_clutter,
    draw_glyph,
    scan,
    sign_colours,
    simulate_photo,
)
from unseen.data.location import data_root, remedy
from unseen.errors import UnseenError

DOMAINS: tuple[str, ...] = ("photo", "printed", "street", "scanner", "inverted")
# Slice of MNIST's training images: 0 to 9,999 train, 10,000 to 10,999 calibrate the alarm.
FIRST, END = 11_000, 12_000
_SEED = 11_000


def load_shift(domain: str) -> tuple[Tensor, Tensor]:
    """Return images (1000, 3, 32, 32) uint8 and labels (1000,) of one shift; deterministic."""
    if domain not in DOMAINS:
        raise UnseenError(f"no shift {domain!r}; there are: {', '.join(DOMAINS)}")
    pixels, labels = _generate(domain, data_root())
    return pixels.clone(), labels.clone()


@cache
def _generate(domain: str, root: Path) -> tuple[Tensor, Tensor]:
    digits, labels = _held_out(root)
    rng = np.random.default_rng([_SEED, DOMAINS.index(domain)])
    generate = {
        "photo": _photo,
        "printed": _printed,
        "street": _street,
        "scanner": _scanner,
        "inverted": _inverted,
    }[domain]
    pixels = generate(digits, rng)
    if pixels.ndim == 3:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    return torch.from_numpy(pixels), torch.from_numpy(labels)


@cache
def _held_out(root: Path) -> tuple[Array, Labels]:
    digits, labels = read_original("mnist", "train")
    if len(labels) < END:
        raise UnseenError(
            f"{root} has {len(labels)} MNIST training images; the shifts need those from {FIRST} "
            f"to {END - 1}: {remedy('digits')}"
        )
    return digits[FIRST:END], labels[FIRST:END]


def _photo(digits: Array, rng: np.random.Generator) -> Array:
    """Like MNIST-M."""
    return blend_with_photos(resize(digits, Image.Resampling.LANCZOS), rng)


def _printed(digits: Array, rng: np.random.Generator) -> Array:
    """Like SYN: any size, position and colour, over clutter."""
    rendered = []
    for digit in digits:
        canvas, ink = draw_clutter(rng)
        mask = Image.new("L", (CANVAS, CANVAS))
        glyph = _crop_glyph(digit, height=int(rng.integers(32, 52)), rng=rng)
        _paste(mask, glyph, *(CENTRE + rng.uniform(-7, 7, 2)))
        rendered.append(draw_glyph(canvas, ink, mask, rng))
    return np.stack(rendered)


def _street(digits: Array, rng: np.random.Generator) -> Array:
    """Like SVHN: between two neighbours on a house number, in a poor photograph."""
    rendered = []
    for digit in digits:
        ink, plate = sign_colours(rng)
        height = int(rng.integers(44, 56))
        middle, before, after = (
            _crop_glyph(d, height, rng) for d in (digit, *digits[rng.integers(0, len(digits), 2)])
        )
        mask = Image.new("L", (CANVAS, CANVAS))
        reach = middle.width / 2 + rng.uniform(-1, 4)
        _paste(mask, before, CENTRE - reach - before.width / 2, CENTRE)
        _paste(mask, after, CENTRE + reach + after.width / 2, CENTRE)
        _paste(mask, middle, CENTRE, CENTRE)
        rendered.append(simulate_photo(mask, ink, plate, rng))
    return np.stack(rendered)


def _scanner(digits: Array, rng: np.random.Generator) -> Array:
    """Like USPS."""
    return np.stack(
        [
            scan(Image.fromarray(d).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC), rng)
            for d in digits
        ]
    )


def _inverted(digits: Array, rng: np.random.Generator) -> Array:
    """Dark digits on light paper."""
    coverage = resize(digits, Image.Resampling.LANCZOS) / 255
    shape = (len(digits), 1, 1)
    paper, ink = rng.uniform(180, 255, shape), rng.uniform(0, 80, shape)
    return np.rint(paper + (ink - paper) * coverage).astype(np.uint8)


def _crop_glyph(digit: Array, height: int, rng: np.random.Generator) -> Image.Image:
    """Crop the digit to its glyph, resize it to a height and randomly thicken its strokes."""
    mask = Image.fromarray(digit)
    mask = mask.crop(mask.getbbox())
    width = max(4, round(mask.width * height / mask.height))
    if width > 44:  # keep wide digits in the frame
        width, height = 44, round(height * 44 / width)
    large = np.pad(np.asarray(mask.resize((width, height), Image.Resampling.BICUBIC)), 2)
    return Image.fromarray(large).filter(ImageFilter.MaxFilter(int(rng.choice([1, 3, 5]))))


def _paste(canvas: Image.Image, glyph: Image.Image, x: float, y: float) -> None:
    """Paste the glyph's ink with its centre at (x, y)."""
    corner = (round(x - glyph.width / 2), round(y - glyph.height / 2))
    canvas.paste(255, corner, glyph)
