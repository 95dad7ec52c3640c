"""Reader of SYNTHIA's video sequences, driving/synthia/SYNTHIA-SEQS-01-DAWN/.

Decoding a sequence takes minutes, so the resized frames are cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.data.cache import Arrays, cached_arrays, file_stamps
from unseen.data.driving import (
    IGNORE,
    NAME,
    UNKNOWN,
    Array,
    Frame,
    apply_lookup,
    check_sizes,
    layout_error,
    open_image,
    pair_files,
    read_image,
    split_drive,
)
from unseen.data.images import UNREADABLE
from unseen.data.location import data_folder
from unseen.errors import UnseenError

PLACES = {"highway": "01", "ny": "02", "euro": "04"}  # Highway, New York-like, Old European Town
WEATHERS = ("dawn", "fog", "night", "spring", "winter")  # as in the paper
CAMERA = "Stereo_Left/Omni_F"  # left front
SIZE = (320, 190)  # width and height, a quarter of 1280x760
MAX_FRAMES = 900  # per domain, as in the paper
TRAIN_SHARE = 0.8  # the paper holds nothing out
CLASSES = (
    *("void", "sky", "building", "road", "sidewalk", "fence", "vegetation", "pole", "car", "sign"),
    *("pedestrian", "bicycle", "lane_marking", "traffic_light"),
)
_LAYOUT = (
    f"RGB/{CAMERA}/<number>.png, 1280x760, and GT/LABELS/{CAMERA}/<number>.png, "
    "16-bit RGB with the class in the first channel: 0 to 12, and 15 for traffic lights"
)
_RESERVED = (13, 14)
_VERSION = 1  # part of the cache key: increase it with every change of the arrays


def load_scenes(place: str, weather: str, split: str | None = None) -> tuple[Tensor, Tensor]:
    """Load images (N, 3, 190, 320) and class maps (N, 190, 320), uint8, of a split or a sequence.

    Of more than 900 frames, a fixed random subset of 900 is used.
    """
    frames = list_frames(place, weather)
    if split is not None:
        frames = list(split_drive(frames, split, TRAIN_SHARE))
    frames = subsample(frames, MAX_FRAMES)
    depends_on = [_VERSION, SIZE, file_stamps(file for frame in frames for file in frame)]

    def read() -> Arrays:
        return dict(zip(("pixels", "labels"), _read_frames(frames), strict=True))

    arrays = cached_arrays(NAME, sequence_name(place, weather), depends_on, read)
    return torch.from_numpy(arrays["pixels"]), torch.from_numpy(arrays["labels"])


def sequence_name(place: str, weather: str) -> str:
    """Return the published folder name of a sequence."""
    if place not in PLACES or weather not in WEATHERS:
        raise UnseenError(
            f"no SYNTHIA domain {place} {weather}; "
            f"there are {', '.join(PLACES)} in {', '.join(WEATHERS)}"
        )
    return f"SYNTHIA-SEQS-{PLACES[place]}-{weather.upper()}"


def list_frames(place: str, weather: str, folder: Path | None = None) -> list[Frame]:
    """Return all frames of the left front camera, in temporal order."""
    folder = data_folder(NAME) if folder is None else folder
    folder = folder / "synthia" / sequence_name(place, weather)
    return pair_files(
        folder / "RGB" / CAMERA,
        folder / "GT/LABELS" / CAMERA,
        ".png",
        f"{folder.name}/ with {_LAYOUT}",
    )


def count_frames(place: str, weather: str, folder: Path | None = None) -> int:
    """Decode every frame of a sequence, to check it, and return their number."""
    frames = list_frames(place, weather, folder)
    for frame in frames:
        check_sizes(frame)
        open_image(frame.image)
        read_label(frame.label, SIZE)
    return len(frames)


def subsample(frames: Sequence[Frame], size: int) -> list[Frame]:
    """Return a fixed random subset of at most `size` frames, in order."""
    if len(frames) <= size:
        return list(frames)
    indices = np.random.default_rng(0).choice(len(frames), size, replace=False)
    return [frames[i] for i in sorted(indices)]


def class_lookup() -> Array:
    """Return the table (256,) from published class numbers to classes."""
    table = np.full(256, UNKNOWN, np.uint8)
    table[:13] = range(13)
    table[15] = 13
    table[list(_RESERVED)] = IGNORE
    return table


def read_label(path: Path, size: tuple[int, int]) -> Array:
    """Read the class numbers of a label map in the given width and height, (H, W)."""
    return apply_lookup(path, _first_channel(path), class_lookup(), size)


def _first_channel(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            rawmode = image.tile[0][3] if image.tile else None
            if (image.format, rawmode) != ("PNG", "RGB;16B"):
                raise layout_error(path, f"is {image.format} {rawmode}", _LAYOUT)
            # Pillow keeps the high byte of 16 bits, the class is in the low one: swap the bytes.
            image.tile = [(*image.tile[0][:3], "RGB;16L")]  # type: ignore[list-item]
            return image.getchannel(0)
    except UNREADABLE as error:
        raise layout_error(path, f"cannot be read ({error})", _LAYOUT) from error


def _read_frames(frames: Sequence[Frame]) -> tuple[Array, Array]:
    pixels = np.empty((len(frames), 3, SIZE[1], SIZE[0]), np.uint8)
    labels = np.empty((len(frames), SIZE[1], SIZE[0]), np.uint8)
    for index, frame in enumerate(frames):
        check_sizes(frame)
        pixels[index] = read_image(frame.image, SIZE).transpose(2, 0, 1)
        labels[index] = read_label(frame.label, SIZE)
    return pixels, labels
