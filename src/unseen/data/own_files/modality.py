"""What a file is, by the ending of its name."""

from __future__ import annotations

import os
from functools import cache
from typing import Literal

Modality = Literal["image", "sound", "text", "array", "table"]

SOUNDS = (".wav", ".flac", ".ogg", ".aiff", ".aif")


@cache
def _endings() -> dict[str, Modality]:
    from PIL import Image

    endings: dict[str, Modality] = dict.fromkeys(Image.registered_extensions(), "image")
    endings |= dict.fromkeys(SOUNDS, "sound")
    return {**endings, ".npy": "array", ".txt": "text"}


def modality_of(path: str) -> Modality | None:
    """Return the modality of a file; None if this is no file that can be read."""
    return _endings().get(os.path.splitext(path)[1].lower())
