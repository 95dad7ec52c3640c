"""The embedded digits benchmark: one handwritten source and four unseen domains, made from installed packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

DOMAINS: tuple[str, ...] = ("photo", "printed", "street", "scanner")
SOURCE = "digits"
SPLITS = ("train", "val", "test")

Array = NDArray[np.uint8]
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Colour = tuple[int, int, int]

SIDE = 32
CLASSES = 10
_SEED = 1797  # the number of scikit-learn's digits; any constant would do
_SOURCE_PER_CLASS = {"train": 100, "test": 40}  # `val` is the rest: 34 to 43 of each class, 397 in all
_POOL_PER_CLASS = 30  # the labelled pool of an unseen domain; the rarest class has 34 source-val digits
_RENDERINGS = {"train": 1, "test": 2}  # of each handwritten digit
_PRINTED_PER_CLASS = {"train": _POOL_PER_CLASS, "test": 60}

# Glyphs are drawn on a canvas of twice the side, then reduced, so that their edges are anti-aliased.
_CANVAS = 2 * SIDE
_CENTRE = (_CANVAS - 1) / 2
_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
# Matplotlib's other fonts have no digits, swash or old-style ones (cmti10, cmmi10), or are near to one of these.
_FONTS = (
    *(f"DejaVu{family}{style}.ttf" for family in ("Sans", "SansMono") for style in ("", "-Bold", "-Oblique")),
    *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic")),
    *(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")),
    *(f"{name}10.ttf" for name in ("cmb", "cmr", "cmss", "cmtt")),
)


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
        raise ValueError(f"the unseen domain {domain!r} has no val split, only the source has; valid: train, test")
    pixels, labels = _cached(domain, split)
    return pixels.clone(), labels.clone()


@cache
def _cached(domain: str, split: str) -> tuple[Tensor, Tensor]:
    if domain == SOURCE:
        cells, labels = _handwriting()[split]
        grey = np.stack([np.asarray(_reduced(_strokes(cell))) for cell in cells])
        pixels = np.repeat(grey[..., None], 3, axis=-1)
    else:
        rng = np.random.default_rng([_SEED, 1 + DOMAINS.index(domain), SPLITS.index(split)])
        make = {"photo": _photo, "printed": _printed, "street": _street, "scanner": _scanner}[domain]
        pixels, labels = make(split, rng)
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))), torch.from_numpy(labels)


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
    return {split: (digits.images[i] / 16, digits.target[i].astype(np.int64)) for split, i in chosen.items()}


def _unseen_handwriting(split: str) -> tuple[Floats, Labels]:
    """Balanced digits an unseen domain is made of: never the source's training digits."""
    cells, labels = _handwriting()["test" if split == "test" else "val"]
    if split == "train":
        kept = np.sort(np.concatenate([np.flatnonzero(labels == c)[:_POOL_PER_CLASS] for c in range(CLASSES)]))
        cells, labels = cells[kept], labels[kept]
    return np.tile(cells, (_RENDERINGS[split], 1, 1)), np.tile(labels, _RENDERINGS[split])


def _strokes(cell: Floats) -> Image.Image:
    """One 8x8 digit on the canvas, white on black, filling three quarters of it as MNIST's 20 of 28 pixels do."""
    scale = 6  # 8 cells * 6 = 48 of 64
    margin = (_CANVAS - 10 * scale) // 2
    bordered = Image.fromarray(np.pad(np.rint(cell * 255).astype(np.uint8), 1))  # so that strokes end round
    smooth = np.asarray(bordered.resize((10 * scale, 10 * scale), Image.Resampling.BICUBIC), dtype=np.float64)
    # A cell counts ink, so an edge is a grey ramp a cell wide; a steeper ramp is nearer to a pen's edge.
    crisp = np.clip((smooth - 50) / 160, 0, 1) * 255
    return Image.fromarray(np.pad(np.rint(crisp).astype(np.uint8), margin))


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
    # Pillow's default layout depends on whether libraqm is installed, and so would the bits.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def _reduced(canvas: Image.Image) -> Image.Image:
    return canvas.resize((SIDE, SIDE), Image.Resampling.BOX)


def _enlarged(small: Image.Image) -> Array:
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _warped(canvas: Image.Image, to_source: Floats) -> Image.Image:
    """The canvas seen through a 3x3 homography about its centre, from where a pixel lands to where it came from."""
    recentre = np.array([[1, 0, -_CENTRE], [0, 1, -_CENTRE], [0, 0, 1]])
    matrix = np.linalg.inv(recentre) @ to_source @ recentre
    coefficients = (matrix / matrix[2, 2]).ravel()[:8].tolist()
    transform = Image.Transform.PERSPECTIVE
    return canvas.transform(canvas.size, transform, coefficients, resample=Image.Resampling.BICUBIC)


def _rotation(degrees: float) -> Floats:
    turn = np.deg2rad(degrees)
    return np.array([[np.cos(turn), np.sin(turn), 0], [-np.sin(turn), np.cos(turn), 0], [0, 0, 1]])


def _glyph_mask(text: str, font: ImageFont.FreeTypeFont, at: tuple[float, float]) -> Image.Image:
    """The text as white ink on a black canvas, the middle of its typeset box at the given point."""
    mask = Image.new("L", (_CANVAS, _CANVAS))
    left, top, right, bottom = font.getbbox(text)
    ImageDraw.Draw(mask).text((at[0] - (left + right) / 2, at[1] - (top + bottom) / 2), text, fill=255, font=font)
    return mask


def _colour_pair(rng: np.random.Generator, least: float, most: float, chroma: float) -> tuple[Colour, Colour]:
    """Two random colours whose luminances differ by least to most grey levels: hue alone is hard to read by."""
    while True:
        pair = rng.uniform(0, 255, (2, 3))
        luminance = pair @ _LUMA
        if least <= abs(luminance[0] - luminance[1]) <= most:
            muted = np.rint(luminance[:, None] + chroma * (pair - luminance[:, None])).astype(int).tolist()
            first, second = (tuple(colour) for colour in muted)
            return first, second


def _noisy(image: Image.Image, sigma: float, rng: np.random.Generator) -> Image.Image:
    pixels = np.asarray(image, dtype=np.float64)
    return Image.fromarray(np.rint(np.clip(pixels + rng.normal(0, sigma, pixels.shape), 0, 255)).astype(np.uint8))


def _shuffled_labels(split: str, rng: np.random.Generator) -> Labels:
    return rng.permutation(np.repeat(np.arange(CLASSES, dtype=np.int64), _PRINTED_PER_CLASS[split]))


def _photo(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After MNIST-M: the absolute difference of a photo patch and a digit."""
    cells, labels = _unseen_handwriting(split)
    digits = np.stack([np.asarray(_reduced(_strokes(cell)), dtype=np.int16) for cell in cells])[..., None]
    photos = np.stack(load_sample_images().images).astype(np.int16)
    count, (photo_count, height, width, _) = len(digits), photos.shape
    which = rng.integers(0, photo_count, count)[:, None, None]
    rows = rng.integers(0, height - SIDE + 1, count)[:, None, None] + np.arange(SIDE)[:, None]
    columns = rng.integers(0, width - SIDE + 1, count)[:, None, None] + np.arange(SIDE)
    return np.abs(photos[which, rows, columns] - digits).astype(np.uint8), labels


def _printed(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After SYN: a printed digit of any font, size, place and colour, over clutter."""
    labels = _shuffled_labels(split, rng)
    rendered = []
    for label in labels:
        ink, paper = _colour_pair(rng, least=80, most=255, chroma=1)
        canvas = Image.new("RGB", (_CANVAS, _CANVAS), paper)
        for _ in range(rng.integers(1, 4)):
            # Clutter is a colour on the paper's side of the ink, so that it is seen but does not join the digit.
            share = rng.uniform(0.2, 0.5)
            faint = tuple(round(p + share * (i - p)) for i, p in zip(ink, paper, strict=True))
            if rng.random() < 0.5:
                ends = rng.integers(-8, _CANVAS + 8, 4).tolist()
                ImageDraw.Draw(canvas).line(ends, fill=faint, width=int(rng.integers(2, 6)))
            else:
                turn = rng.uniform(0, 2 * np.pi)
                at = (_CENTRE + 36 * np.cos(turn), _CENTRE + 36 * np.sin(turn))  # partly out of the frame
                letter = "ABCEFHKLMNRSTXYZ"[rng.integers(16)]
                mask = _glyph_mask(letter, _font(str(rng.choice(_FONTS)), int(rng.integers(30, 60))), at)
                canvas.paste(faint, mask=_warped(mask, _rotation(rng.uniform(-45, 45))))
        font = _font(str(rng.choice(_FONTS)), int(rng.integers(44, 70)))  # digits about 30 to 50 of 64 high
        mask = _glyph_mask(str(label), font, tuple(_CENTRE + rng.uniform(-7, 7, 2)))
        canvas.paste(ink, mask=_warped(mask, _rotation(rng.uniform(-15, 15))))
        rendered.append(np.asarray(_reduced(canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5))))))
    return np.stack(rendered), labels


def _street(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After SVHN: the middle digit of a house number, small and badly photographed."""
    labels = _shuffled_labels(split, rng)
    across, down = np.meshgrid(*[np.linspace(-1, 1, _CANVAS)] * 2)
    rendered = []
    for label in labels:
        ink, plate = _colour_pair(rng, least=55, most=130, chroma=0.5)
        font = _font(str(rng.choice(_FONTS)), int(rng.integers(58, 76)))
        mask = _glyph_mask(str(label), font, (_CENTRE, _CENTRE))
        left, top, right, bottom = font.getbbox(str(label))
        reach, line_top = (right - left) / 2 + rng.uniform(-3, 2), _CENTRE - (top + bottom) / 2
        before, after = (str(digit) for digit in rng.integers(0, CLASSES, 2))
        draw = ImageDraw.Draw(mask)
        draw.text((_CENTRE - reach - font.getbbox(before)[2], line_top), before, fill=255, font=font)
        draw.text((_CENTRE + reach - font.getbbox(after)[0], line_top), after, fill=255, font=font)
        view = _rotation(rng.uniform(-8, 8))
        view[2, :2] = rng.uniform(-0.15, 0.15, 2) / _CANVAS
        canvas = Image.new("RGB", mask.size, plate)
        canvas.paste(ink, mask=_warped(mask, view))
        light_x, light_y = rng.uniform(-20, 20, 2)
        lit = np.asarray(canvas, dtype=np.float64) + (light_x * across + light_y * down)[..., None]
        canvas = Image.fromarray(np.rint(np.clip(lit, 0, 255)).astype(np.uint8))
        blurred = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 1.5)))
        sensor = blurred.resize([int(rng.integers(14, 28))] * 2, Image.Resampling.BOX)
        rendered.append(_enlarged(_noisy(sensor, rng.uniform(2, 8), rng)))
    return np.stack(rendered), labels


def _scanner(split: str, rng: np.random.Generator) -> tuple[Array, Labels]:
    """After USPS: digits of another pen, cropped tight, slanted and scanned at 16x16 on paper that is not black."""
    cells, labels = _unseen_handwriting(split)
    rendered = []
    for cell in cells:
        # One pixel of 64 off or onto each side of a stroke; two would break faint strokes and close loops.
        pen = ImageFilter.MaxFilter(3) if rng.random() < 0.5 else ImageFilter.MinFilter(3)
        slant = np.array([[1, rng.uniform(-0.1, 0.4), 0], [0, 1, 0], [0, 0, 1]])
        digit = _warped(_strokes(cell).filter(pen), slant)
        digit = digit.crop(digit.getbbox())
        height = int(rng.integers(56, 63))
        width = min(60, round(digit.width * height / digit.height * rng.uniform(0.85, 1.25)))
        page = Image.new("L", (_CANVAS, _CANVAS))
        corner = ((_CANVAS - width) // 2, (_CANVAS - height) // 2)
        page.paste(digit.resize((width, height), Image.Resampling.BICUBIC), corner)
        coverage = np.asarray(page.resize((16, 16), Image.Resampling.BOX), dtype=np.float64) / 255
        paper, ink = rng.uniform(15, 60), rng.uniform(170, 255)
        scan = Image.fromarray(np.rint(paper + (ink - paper) * coverage).astype(np.uint8))
        rendered.append(_enlarged(_noisy(scan, rng.uniform(4, 12), rng)))
    return np.repeat(np.stack(rendered)[..., None], 3, axis=-1), labels
