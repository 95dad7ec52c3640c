"""Rendering of digits: over photos, on cluttered paper, on street signs, scanned.

A glyph is a mask, white ink on a black canvas, from a font or from handwriting. All random numbers
come from the generator passed in.
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
# Glyphs are drawn at twice the resolution and reduced, for anti-aliased edges.
CANVAS = 2 * SIDE
CENTRE = (CANVAS - 1) / 2
_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
# Matplotlib's other fonts have no digits, unusual ones (cmti10, cmmi10), or resemble one of these.
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
def load_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """Load one of matplotlib's fonts."""
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
    # Pillow's default layout engine, and so the bits, depends on whether libraqm is installed.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def random_font(rng: np.random.Generator, smallest: int, below: int) -> ImageFont.FreeTypeFont:
    """Draw a font and a size in [smallest, below)."""
    return load_font(str(rng.choice(FONTS)), int(rng.integers(smallest, below)))


def reduce_canvas(canvas: Image.Image) -> Image.Image:
    """Reduce a canvas to 32x32 by averaging."""
    return canvas.resize((SIDE, SIDE), Image.Resampling.BOX)


def enlarge(small: Image.Image) -> Array:
    """Enlarge an image to 32x32 with bicubic interpolation."""
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def warp(canvas: Image.Image, to_source: Floats) -> Image.Image:
    """Apply a 3x3 homography about the centre, given as the map from output to input pixels."""
    recentre = np.array([[1, 0, -CENTRE], [0, 1, -CENTRE], [0, 0, 1]])
    matrix = np.linalg.inv(recentre) @ to_source @ recentre
    coefficients = (matrix / matrix[2, 2]).ravel()[:8].tolist()
    transform = Image.Transform.PERSPECTIVE
    return canvas.transform(canvas.size, transform, coefficients, resample=Image.Resampling.BICUBIC)


def rotation(degrees: float) -> Floats:
    """Return the 3x3 matrix of a rotation."""
    angle = np.deg2rad(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])


def text_mask(text: str, font: ImageFont.FreeTypeFont, at: tuple[float, float]) -> Image.Image:
    """Draw text in white on black, the centre of its bounding box at the given point."""
    mask = Image.new("L", (CANVAS, CANVAS))
    left, top, right, bottom = font.getbbox(text)
    ImageDraw.Draw(mask).text(
        (at[0] - (left + right) / 2, at[1] - (top + bottom) / 2), text, fill=255, font=font
    )
    return mask


def colour_pair(
    rng: np.random.Generator, least: float, most: float, chroma: float
) -> tuple[Colour, Colour]:
    """Draw two colours whose luminances differ by `least` to `most` grey levels."""
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


def add_noise(image: Image.Image, sigma: float, rng: np.random.Generator) -> Image.Image:
    """Add Gaussian noise."""
    pixels = np.asarray(image, dtype=np.float64)
    return Image.fromarray(
        np.rint(np.clip(pixels + rng.normal(0, sigma, pixels.shape), 0, 255)).astype(np.uint8)
    )


def blend_with_photos(digits: Array, rng: np.random.Generator) -> Array:
    """Like MNIST-M: absolute difference with photo patches, (N, 32, 32) -> (N, 32, 32, 3)."""
    photos = np.stack(load_sample_images().images).astype(np.int16)
    count, (photo_count, height, width, _) = len(digits), photos.shape
    which = rng.integers(0, photo_count, count)[:, None, None]
    rows = rng.integers(0, height - SIDE + 1, count)[:, None, None] + np.arange(SIDE)[:, None]
    columns = rng.integers(0, width - SIDE + 1, count)[:, None, None] + np.arange(SIDE)
    return np.abs(photos[which, rows, columns] - digits[..., None].astype(np.int16)).astype(
        np.uint8
    )


def draw_clutter(rng: np.random.Generator) -> tuple[Image.Image, Colour]:
    """Like SYN: return coloured paper with faint lines and letters, and a readable ink colour."""
    ink, paper = colour_pair(rng, least=80, most=255, chroma=1)
    canvas = Image.new("RGB", (CANVAS, CANVAS), paper)
    for _ in range(rng.integers(1, 4)):
        # Between paper and ink, closer to the paper, so that clutter does not merge with the digit.
        weight = rng.uniform(0.2, 0.5)
        faint = tuple(round(p + weight * (i - p)) for i, p in zip(ink, paper, strict=True))
        if rng.random() < 0.5:
            ends = rng.integers(-8, CANVAS + 8, 4).tolist()
            ImageDraw.Draw(canvas).line(ends, fill=faint, width=int(rng.integers(2, 6)))
        else:
            angle = rng.uniform(0, 2 * np.pi)
            # Partly out of the frame.
            at = (CENTRE + 36 * np.cos(angle), CENTRE + 36 * np.sin(angle))
            letter = "ABCEFHKLMNRSTXYZ"[rng.integers(16)]
            mask = text_mask(letter, random_font(rng, 30, 60), at)
            canvas.paste(faint, mask=warp(mask, rotation(rng.uniform(-45, 45))))
    return canvas, ink


def draw_glyph(
    canvas: Image.Image, ink: Colour, mask: Image.Image, rng: np.random.Generator
) -> Array:
    """Draw a slightly rotated glyph on the paper, then blur."""
    canvas.paste(ink, mask=warp(mask, rotation(rng.uniform(-15, 15))))
    return np.asarray(reduce_canvas(canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))))


def sign_colours(rng: np.random.Generator) -> tuple[Colour, Colour]:
    """Draw muted ink and plate colours of low contrast; either may be lighter."""
    return colour_pair(rng, least=55, most=130, chroma=0.5)


def simulate_photo(
    mask: Image.Image, ink: Colour, plate: Colour, rng: np.random.Generator
) -> Array:
    """Like SVHN: a sign at an angle in uneven light, seen by a small, blurred and noisy sensor."""
    view = rotation(rng.uniform(-8, 8))
    view[2, :2] = rng.uniform(-0.15, 0.15, 2) / CANVAS
    canvas = Image.new("RGB", mask.size, plate)
    canvas.paste(ink, mask=warp(mask, view))
    light_x, light_y = rng.uniform(-20, 20, 2)
    across, down = np.meshgrid(*[np.linspace(-1, 1, CANVAS)] * 2)
    lit = np.asarray(canvas, dtype=np.float64) + (light_x * across + light_y * down)[..., None]
    canvas = Image.fromarray(np.rint(np.clip(lit, 0, 255)).astype(np.uint8))
    blurred = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 1.5)))
    sensor = blurred.resize([int(rng.integers(14, 28))] * 2, Image.Resampling.BOX)
    return enlarge(add_noise(sensor, rng.uniform(2, 8), rng))


def scan(strokes: Image.Image, rng: np.random.Generator) -> Array:
    """Like USPS: another pen, tight crop, slant, and a grey scan at 16x16; returns (32, 32)."""
    # One pixel of 64; two would break faint strokes and close loops.
    pen = ImageFilter.MaxFilter(3) if rng.random() < 0.5 else ImageFilter.MinFilter(3)
    slant = np.array([[1, rng.uniform(-0.1, 0.4), 0], [0, 1, 0], [0, 0, 1]])
    digit = warp(strokes.filter(pen), slant)
    digit = digit.crop(digit.getbbox())
    height = int(rng.integers(56, 63))
    width = min(60, round(digit.width * height / digit.height * rng.uniform(0.85, 1.25)))
    page = Image.new("L", (CANVAS, CANVAS))
    corner = ((CANVAS - width) // 2, (CANVAS - height) // 2)
    page.paste(digit.resize((width, height), Image.Resampling.BICUBIC), corner)
    coverage = np.asarray(page.resize((16, 16), Image.Resampling.BOX), dtype=np.float64) / 255
    paper, ink = rng.uniform(15, 60), rng.uniform(170, 255)
    image = Image.fromarray(np.rint(paper + (ink - paper) * coverage).astype(np.uint8))
    return enlarge(add_noise(image, rng.uniform(4, 12), rng))
