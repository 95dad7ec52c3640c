"""SYNTHIA's video sequences as they are published: driving/synthia/SYNTHIA-SEQS-01-DAWN/{RGB,GT/LABELS}/Stereo_Left/Omni_F.

A sequence is minutes of work to decode, so its small frames are kept in the cache folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.data.cache import Arrays, made_once, stamps
from unseen.data.driving import (
    IGNORE,
    NAME,
    UNKNOWN,
    Array,
    Frame,
    block,
    image_at,
    looked_up,
    must_fit,
    off,
    opened,
    paired,
)
from unseen.data.location import data_folder
from unseen.errors import UnseenError

PLACES = {
    "highway": "01",
    "ny": "02",
    "euro": "04",
}  # the publisher's Highway, New York-like and Old European Town
WEATHERS = ("dawn", "fog", "night", "spring", "winter")  # those of the paper
CAMERA = "Stereo_Left/Omni_F"  # the left front one
SIZE = (320, 190)  # width and height, a quarter of 1280x760
MOST = 900  # frames of a domain, as in the paper
TRAIN_SHARE = (
    0.8  # the paper holds nothing out, and a sequence may have no more than its 900 frames
)
CLASSES = (
    "void", "sky", "building", "road", "sidewalk", "fence", "vegetation", "pole", "car", "sign", "pedestrian", "bicycle",
    "lane_marking", "traffic_light",
)  # fmt: skip
_LAYOUT = (
    f"RGB/{CAMERA}/<number>.png, 1280x760, beside GT/LABELS/{CAMERA}/<number>.png, "
    "16-bit RGB with the class in the first channel: 0 to 12, and 15 for traffic lights"
)
_RESERVED = (13, 14)
_VERSION = 1  # of what is kept in the cache: raise it when the same files would give other arrays


def scenes(place: str, weather: str, split: str | None = None) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 190, 320) and class numbers (N, 190, 320), uint8, of a split or, without one, of the whole sequence.

    Of more than 900 frames, 900 are drawn at random, the same ones at every call.
    """
    everything = frames(place, weather)
    chosen = drawn(everything if split is None else block(everything, split, TRAIN_SHARE), MOST)
    depends_on = [_VERSION, SIZE, stamps(file for frame in chosen for file in frame)]

    def read() -> Arrays:
        return dict(zip(("pixels", "labels"), _read(chosen), strict=True))

    kept = made_once(NAME, sequence_name(place, weather), depends_on, read)
    return torch.from_numpy(kept["pixels"]), torch.from_numpy(kept["labels"])


def sequence_name(place: str, weather: str) -> str:
    if place not in PLACES or weather not in WEATHERS:
        raise UnseenError(
            f"no SYNTHIA domain {place} {weather}; there are {', '.join(PLACES)} in {', '.join(WEATHERS)}"
        )
    return f"SYNTHIA-SEQS-{PLACES[place]}-{weather.upper()}"


def frames(place: str, weather: str, folder: Path | None = None) -> list[Frame]:
    """All frames of the left front camera, in order of time."""
    folder = (
        (data_folder(NAME) if folder is None else folder)
        / "synthia"
        / sequence_name(place, weather)
    )
    return paired(
        folder / "RGB" / CAMERA,
        folder / "GT/LABELS" / CAMERA,
        ".png",
        f"{folder.name}/ with {_LAYOUT}",
    )


def must_be_readable(place: str, weather: str, folder: Path | None = None) -> int:
    """Decode every frame of a sequence; how many there are."""
    found = frames(place, weather, folder)
    for frame in found:
        must_fit(frame)
        opened(frame.image)
        label_at(frame.label, SIZE)
    return len(found)


def drawn(frames: Sequence[Frame], most: int) -> list[Frame]:
    """At most so many of the frames, at random but always the same, in order."""
    if len(frames) <= most:
        return list(frames)
    return [
        frames[i] for i in sorted(np.random.default_rng(0).choice(len(frames), most, replace=False))
    ]


def class_lookup() -> Array:
    """Our class of each published number, (256,)."""
    table = np.full(256, UNKNOWN, np.uint8)
    table[:13] = range(13)
    table[15] = 13
    table[list(_RESERVED)] = IGNORE
    return table


def label_at(path: Path, size: tuple[int, int]) -> Array:
    """Class numbers of a published label map in the given width and height, (H, W)."""
    return looked_up(path, _first_channel(path), class_lookup(), size)


def _first_channel(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            rawmode = image.tile[0][3] if image.tile else None
            if (image.format, rawmode) != ("PNG", "RGB;16B"):
                raise off(path, f"it is {image.format} {rawmode}", _LAYOUT)
            # Pillow keeps the high byte of 16, and the class is in the low one: read as the other byte order, they swap.
            image.tile = [(*image.tile[0][:3], "RGB;16L")]  # type: ignore[list-item]
            return image.getchannel(0)
    except (OSError, SyntaxError, ValueError) as error:
        raise off(path, f"it cannot be read ({error})", _LAYOUT) from error


def _read(chosen: Sequence[Frame]) -> tuple[Array, Array]:
    pixels = np.empty((len(chosen), 3, SIZE[1], SIZE[0]), np.uint8)
    labels = np.empty((len(chosen), SIZE[1], SIZE[0]), np.uint8)
    for index, frame in enumerate(chosen):
        must_fit(frame)
        pixels[index] = image_at(frame.image, SIZE).transpose(2, 0, 1)
        labels[index] = label_at(frame.label, SIZE)
    return pixels, labels
