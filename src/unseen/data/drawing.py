"""How digits are painted: over photos, on cluttered paper, on a street sign, through a scanner.

A glyph is a mask, white ink on a black canvas: a font's, or handwriting. Everything random comes from the generator
that is handed in.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from sklearn.datasets import load_sample_images

Array = NDArray[np.uint8]
Floats = NDArray[np.float64]
Colour = tuple[int, int, int]

SIDE = 32
# Glyphs are drawn on a canvas of twice the side, then reduced, so that their edges are anti-aliased.
CANVAS = 2 * SIDE
CENTRE = (CANVAS - 1) / 2
_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
# Matplotlib's other fonts have no digits, swash or old-style ones (cmti10, cmmi10), or are near to one of these.
FONTS = (
    *(
        f"DejaVu{family}{style}.ttf"
        for family in ("Sans", "SansMono")
        for style in ("", "-Bold", "-Oblique")
    ),
    *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic")),
    *(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")),
    *(f"{name}10.ttf" for name in ("cmb", "cmr", "cmss", "cmtt")),
)


@cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
    # Pillow's default layout depends on whether libraqm is installed, and so would the bits.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def any_font(rng: np.random.Generator, smallest: int, below: int) -> ImageFont.FreeTypeFont:
    return font(str(rng.choice(FONTS)), int(rng.integers(smallest, below)))


def reduced(canvas: Image.Image) -> Image.Image:
    return canvas.resize((SIDE, SIDE), Image.Resampling.BOX)


def enlarged(small: Image.Image) -> Array:
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def warped(canvas: Image.Image, to_source: Floats) -> Image.Image:
    """The canvas seen through a 3x3 homography about its centre, from where a pixel lands to where it came from."""
    recentre = np.array([[1, 0, -CENTRE], [0, 1, -CENTRE], [0, 0, 1]])
    matrix = np.linalg.inv(recentre) @ to_source @ recentre
    coefficients = (matrix / matrix[2, 2]).ravel()[:8].tolist()
    transform = Image.Transform.PERSPECTIVE
    return canvas.transform(canvas.size, transform, coefficients, resample=Image.Resampling.BICUBIC)


def rotation(degrees: float) -> Floats:
    turn = np.deg2rad(degrees)
    return np.array([[np.cos(turn), np.sin(turn), 0], [-np.sin(turn), np.cos(turn), 0], [0, 0, 1]])


def text_mask(text: str, drawn_in: ImageFont.FreeTypeFont, at: tuple[float, float]) -> Image.Image:
    """The text as white ink on a black canvas, the middle of its typeset box at the given point."""
    mask = Image.new("L", (CANVAS, CANVAS))
    left, top, right, bottom = drawn_in.getbbox(text)
    ImageDraw.Draw(mask).text(
        (at[0] - (left + right) / 2, at[1] - (top + bottom) / 2), text, fill=255, font=drawn_in
    )
    return mask


def colour_pair(
    rng: np.random.Generator, least: float, most: float, chroma: float
) -> tuple[Colour, Colour]:
    """Two random colours whose luminances differ by least to most grey levels: hue alone is hard to read by."""
    while True:
        pair = rng.uniform(0, 255, (2, 3))
        luminance = pair @ _LUMA
        if least <= abs(luminance[0] - luminance[1]) <= most:
            muted = (
                np.rint(luminance[:, None] + chroma * (pair - luminance[:, None]))
                .astype(int)
                .tolist()
            )
            first, second = (tuple(colour) for colour in muted)
            return first, second


def noisy(image: Image.Image, sigma: float, rng: np.random.Generator) -> Image.Image:
    pixels = np.asarray(image, dtype=np.float64)
    return Image.fromarray(
        np.rint(np.clip(pixels + rng.normal(0, sigma, pixels.shape), 0, 255)).astype(np.uint8)
    )


def over_photos(digits: Array, rng: np.random.Generator) -> Array:
    """After MNIST-M: the absolute difference of a photo patch and each digit, (N, 32, 32) -> (N, 32, 32, 3)."""
    photos = np.stack(load_sample_images().images).astype(np.int16)
    count, (photo_count, height, width, _) = len(digits), photos.shape
    which = rng.integers(0, photo_count, count)[:, None, None]
    rows = rng.integers(0, height - SIDE + 1, count)[:, None, None] + np.arange(SIDE)[:, None]
    columns = rng.integers(0, width - SIDE + 1, count)[:, None, None] + np.arange(SIDE)
    return np.abs(photos[which, rows, columns] - digits[..., None].astype(np.int16)).astype(
        np.uint8
    )


def cluttered_paper(rng: np.random.Generator) -> tuple[Image.Image, Colour]:
    """After SYN: coloured paper with faint lines and letters on it, and a colour of ink that can be read on it."""
    ink, paper = colour_pair(rng, least=80, most=255, chroma=1)
    canvas = Image.new("RGB", (CANVAS, CANVAS), paper)
    for _ in range(rng.integers(1, 4)):
        # Clutter is a colour on the paper's side of the ink, so that it is seen but does not join the digit.
        share = rng.uniform(0.2, 0.5)
        faint = tuple(round(p + share * (i - p)) for i, p in zip(ink, paper, strict=True))
        if rng.random() < 0.5:
            ends = rng.integers(-8, CANVAS + 8, 4).tolist()
            ImageDraw.Draw(canvas).line(ends, fill=faint, width=int(rng.integers(2, 6)))
        else:
            turn = rng.uniform(0, 2 * np.pi)
            at = (CENTRE + 36 * np.cos(turn), CENTRE + 36 * np.sin(turn))  # partly out of the frame
            letter = "ABCEFHKLMNRSTXYZ"[rng.integers(16)]
            mask = text_mask(letter, any_font(rng, 30, 60), at)
            canvas.paste(faint, mask=warped(mask, rotation(rng.uniform(-45, 45))))
    return canvas, ink


def inked(canvas: Image.Image, ink: Colour, mask: Image.Image, rng: np.random.Generator) -> Array:
    """The glyph put on the paper a little turned, then blurred."""
    canvas.paste(ink, mask=warped(mask, rotation(rng.uniform(-15, 15))))
    return np.asarray(reduced(canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))))


def street_colours(rng: np.random.Generator) -> tuple[Colour, Colour]:
    """Ink and plate of a house number: muted, of little contrast, either one the lighter."""
    return colour_pair(rng, least=55, most=130, chroma=0.5)


def photographed(mask: Image.Image, ink: Colour, plate: Colour, rng: np.random.Generator) -> Array:
    """After SVHN: a sign seen at an angle in uneven light, by a small, blurred and noisy sensor."""
    view = rotation(rng.uniform(-8, 8))
    view[2, :2] = rng.uniform(-0.15, 0.15, 2) / CANVAS
    canvas = Image.new("RGB", mask.size, plate)
    canvas.paste(ink, mask=warped(mask, view))
    light_x, light_y = rng.uniform(-20, 20, 2)
    across, down = np.meshgrid(*[np.linspace(-1, 1, CANVAS)] * 2)
    lit = np.asarray(canvas, dtype=np.float64) + (light_x * across + light_y * down)[..., None]
    canvas = Image.fromarray(np.rint(np.clip(lit, 0, 255)).astype(np.uint8))
    blurred = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 1.5)))
    sensor = blurred.resize([int(rng.integers(14, 28))] * 2, Image.Resampling.BOX)
    return enlarged(noisy(sensor, rng.uniform(2, 8), rng))


def scanned(strokes: Image.Image, rng: np.random.Generator) -> Array:
    """After USPS: a digit of another pen, cropped tight, slanted and scanned at 16x16 on paper that is not black; grey."""
    # One pixel of 64 off or onto each side of a stroke; two would break faint strokes and close loops.
    pen = ImageFilter.MaxFilter(3) if rng.random() < 0.5 else ImageFilter.MinFilter(3)
    slant = np.array([[1, rng.uniform(-0.1, 0.4), 0], [0, 1, 0], [0, 0, 1]])
    digit = warped(strokes.filter(pen), slant)
    digit = digit.crop(digit.getbbox())
    height = int(rng.integers(56, 63))
    width = min(60, round(digit.width * height / digit.height * rng.uniform(0.85, 1.25)))
    page = Image.new("L", (CANVAS, CANVAS))
    corner = ((CANVAS - width) // 2, (CANVAS - height) // 2)
    page.paste(digit.resize((width, height), Image.Resampling.BICUBIC), corner)
    coverage = np.asarray(page.resize((16, 16), Image.Resampling.BOX), dtype=np.float64) / 255
    paper, ink = rng.uniform(15, 60), rng.uniform(170, 255)
    scan = Image.fromarray(np.rint(paper + (ink - paper) * coverage).astype(np.uint8))
    return enlarged(noisy(scan, rng.uniform(4, 12), rng))
