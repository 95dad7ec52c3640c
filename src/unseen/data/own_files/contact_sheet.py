"""A contact sheet: some images of each class, a row for each domain and class."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from unseen.data.own_files.collection import Collection
from unseen.data.own_files.sound import SoundReader
from unseen.errors import UnseenError
from unseen.files import write_atomically

TILE = 72  # pixels
TILES = 8  # samples of a row
MOST_ROWS = 60
MARGIN, GAP, TEXT = 12, 4, 190
INK, PAPER, QUIET = (32, 32, 32), (255, 255, 255), (110, 110, 110)


def contact_sheet(made: Collection, path: Path) -> bool:
    """Write a PNG of images or spectrograms; return False if the data are of another kind."""
    if made.modality not in ("image", "sound") or not made.rows:
        return False
    rows = _rows(made)
    width = 2 * MARGIN + TEXT + TILES * (TILE + GAP)
    sheet = Image.new("RGB", (width, 2 * MARGIN + len(rows) * (TILE + GAP)), PAPER)
    draw = ImageDraw.Draw(sheet)
    large, small = ImageFont.load_default(15), ImageFont.load_default(12)
    for number, (domain, label, indices) in enumerate(rows):
        top = MARGIN + number * (TILE + GAP)
        draw.text((MARGIN, top + 16), _shorten(label), INK, large)
        draw.text((MARGIN, top + 38), f"{_shorten(domain)}, {len(indices)}", QUIET, small)
        chosen = np.linspace(0, len(indices) - 1, min(TILES, len(indices))).round().astype(int)
        for column, place in enumerate(chosen):
            tile = _tile(made, indices[place])
            left = MARGIN + TEXT + column * (TILE + GAP)
            sheet.paste(tile, (left + (TILE - tile.width) // 2, top + (TILE - tile.height) // 2))
    content = io.BytesIO()
    sheet.save(content, "PNG")
    write_atomically(path, content.getvalue())
    return True


def _rows(made: Collection) -> list[tuple[str, str, list[int]]]:
    groups: dict[tuple[str, str], list[int]] = {}
    named = made.label_kind in ("classes", "several")
    for index, row in enumerate(made.rows):
        label = (row.label or "no label") if named else "all"
        groups.setdefault((row.domain, label), []).append(index)
    order = {name: i for i, name in enumerate(made.domains)}
    keys = sorted(groups, key=lambda key: (order[key[0]], key[1]))
    return [(domain, label, groups[domain, label]) for domain, label in keys[:MOST_ROWS]]


def _tile(made: Collection, index: int) -> Image.Image:
    path = made.contents[index]
    try:
        if made.modality == "sound":
            fact = made.facts[index]
            assert fact is not None
            pixels = SoundReader(seconds=min(10.0, max(0.1, fact.shape[0] / 100))).read(path)[0]
            return Image.fromarray(pixels[::-1]).resize((TILE, TILE)).convert("RGB")
        with Image.open(path) as image:
            image.draft("RGB", (TILE, TILE))
            tile = ImageOps.exif_transpose(image).convert("RGB")
        return ImageOps.contain(tile, (TILE, TILE))
    except (OSError, UnseenError, ValueError):  # listed among the problems
        return Image.new("RGB", (TILE, TILE), QUIET)


def _shorten(text: str) -> str:
    return text if len(text) <= 22 else f"{text[:21]}…"
