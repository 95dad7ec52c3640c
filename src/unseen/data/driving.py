"""Street scenes with a class for every pixel: CamVid by day and at dusk, CARLA in clear weather, in ten common classes.

Nothing is cached: decoding and scaling all 577 day frames takes about two seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import TensorDataset

from unseen.data.location import MissingData, data_folder, remedy
from unseen.errors import UnseenError

Array = NDArray[np.uint8]
T = TypeVar("T")

NAME = "driving"
SIZE = (120, 90)  # width and height, half of what is stored
IGNORE = 255
CLASSES = (
    "sky",
    "building",
    "pole",
    "road",
    "sidewalk",
    "vegetation",
    "sign",
    "fence",
    "vehicle",
    "person",
)
TRAIN_SHARE = 0.6  # 115 of CamVid's day frames are left for val: fewer would make a poor threshold of the alarm
# The folders below driving/ that make up a domain, each one drive in the order of its file names.
SEQUENCES = {
    "day": ("camvid/0006R0", "camvid/0016E5", "camvid/Seq05VD"),
    "dusk": ("camvid/0001TP",),
    "clear": ("carla/clear",),
}
# The common class of each class number that a data set has: CamVid's eleven in SegNet's order, 11 for none, and CARLA's tags.
COMMON = {
    "camvid": (*CLASSES, None, None),  # its tenth is bicyclists
    "carla_clear23": (
        None, "building", "fence", None, "person", "pole", "road", "road", "sidewalk", "vegetation", "vehicle", "building",
        "sign", "sky", None, "building", None, "fence", "sign", None, None, None, "vegetation",
    ),
}  # fmt: skip
# The look-up, here or in a user's classes.json, from a domain's own class numbers to the common ones.
_LOOKUP = {"day": "camvid", "dusk": "camvid", "clear": "carla_clear23"}
_LAYOUT = "images/<name>.jpg beside labels/<name>.png of class numbers, 8-bit grey, 255 for pixels without a class"
_TABLE = 'common10 with "names", the ten classes in our order, and "lookup" with a list of class numbers for each data set'


class Scenes(TensorDataset):
    """Images and label maps kept as bytes, given as floats from 0 to 1 and as class numbers."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float() / 255, y.long()


class Frame(NamedTuple):
    """The files of one frame."""

    image: Path
    label: Path


def scenes(domain: str, split: str | None = None) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 90, 120) and common class numbers (N, 90, 120), uint8, of a split or of the whole domain."""
    lookup = class_lookup(domain)
    chosen = [
        f
        for frames in sequences(domain)
        for f in (frames if split is None else block(frames, split, TRAIN_SHARE))
    ]
    for frame in chosen:
        must_fit(frame)
    pixels = np.stack([image_at(frame.image, SIZE) for frame in chosen])
    labels = np.stack([label_at(frame, lookup, SIZE) for frame in chosen])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def block(frames: Sequence[T], split: str, train_share: float) -> Sequence[T]:
    """The part of one drive that a source's split has: neighbouring frames are alike, so each split is one stretch of it.

    The first `train_share` of the frames trains, the first half of the rest is held out (val), the last half tests.
    """
    first = round(len(frames) * train_share)
    second = first + (len(frames) - first) // 2
    parts = {"train": frames[:first], "val": frames[first:second], "test": frames[second:]}
    if split not in parts:
        raise UnseenError(f'a source of driving has no split "{split}"; it has: {", ".join(parts)}')
    return parts[split]


def sequences(domain: str, folder: Path | None = None) -> list[list[Frame]]:
    """The frames of a domain's drives, in order of time."""
    if domain not in SEQUENCES:
        raise UnseenError(
            f"the driving data has no domain {domain}; it has: {', '.join(SEQUENCES)}"
        )
    folder = data_folder(NAME) if folder is None else folder
    return [
        paired(folder / place / "images", folder / place / "labels", ".jpg", _LAYOUT)
        for place in SEQUENCES[domain]
    ]


def paired(images: Path, labels: Path, suffix: str, layout: str) -> list[Frame]:
    """Every image of a folder with its label map, in the order of their names."""
    for folder in (images, labels):
        if not folder.is_dir():
            raise MissingData(f"{folder} is missing: expected {layout}; {remedy(NAME)}")
    names = sorted(file.stem for file in images.iterdir() if file.suffix == suffix)
    labelled = {file.stem for file in labels.iterdir() if file.suffix == ".png"}
    if not names:
        raise off(images, f"it holds no {suffix} file", layout)
    if odd := sorted(set(names) ^ labelled):
        raise off(
            images.parent,
            f"{len(odd)} frames have an image or a label map alone, {odd[0]} first",
            layout,
        )
    return [Frame(images / f"{name}{suffix}", labels / f"{name}.png") for name in names]


def must_fit(frame: Frame) -> None:
    """A label map of another size than its image would be stretched over it without a word."""
    sizes = []
    for path in (frame.image, frame.label):
        try:
            with Image.open(path) as image:  # the header alone
                sizes.append(image.size)
        except (OSError, SyntaxError, ValueError) as error:
            raise off(path, f"it cannot be read ({error})", "a whole image file") from error
    if sizes[0] != sizes[1]:
        told = [f"{width}x{height}" for width, height in sizes]
        raise off(frame.label, f"it is {told[1]}", f"{told[0]}, the size of {frame.image.name}")


def must_be_readable(domain: str, folder: Path | None = None) -> int:
    """Decode every frame of a domain; how many there are."""
    lookup = class_lookup(domain, folder)
    frames = [frame for drive in sequences(domain, folder) for frame in drive]
    for frame in frames:
        must_fit(frame)
        opened(frame.image)
        label_at(frame, lookup, SIZE)
    return len(frames)


def class_lookup(domain: str, folder: Path | None = None) -> Array:
    """The common class of each of a domain's own class numbers, (256,); 255 stays 255. A user's classes.json goes before ours."""
    path = (data_folder(NAME) if folder is None else folder) / "classes.json"
    if not path.exists():
        ours = COMMON[_LOOKUP[domain]]
        return _table([IGNORE if name is None else CLASSES.index(name) for name in ours])
    try:
        common = json.loads(path.read_text())["common10"]
        names, numbers = tuple(common["names"]), list(common["lookup"][_LOOKUP[domain]])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise off(path, f"{type(error).__name__}: {error}", _TABLE) from error
    if names != CLASSES:
        raise off(
            path, f"its names are {', '.join(map(str, names))}", f"{_TABLE}: {', '.join(CLASSES)}"
        )
    if (
        not all(type(n) is int and (0 <= n < len(CLASSES) or n == IGNORE) for n in numbers)
        or not 0 < len(numbers) < IGNORE
    ):
        raise off(
            path,
            f"its look-up of {_LOOKUP[domain]} is {numbers}",
            f"numbers from 0 to {len(CLASSES) - 1}, or {IGNORE}",
        )
    return _table(numbers)


UNKNOWN = 254  # in a look-up: a class number that the data set does not have


def _table(numbers: list[int]) -> Array:
    table = np.full(256, UNKNOWN, np.uint8)
    table[: len(numbers)] = numbers
    table[IGNORE] = IGNORE
    return table


def image_at(path: Path, size: tuple[int, int]) -> Array:
    """An image in the given width and height, (H, W, 3); each new pixel is the mean of the area it covers."""
    image = opened(path).convert("RGB")
    return np.asarray(image if image.size == size else image.resize(size, Image.Resampling.BOX))


def label_at(frame: Frame, lookup: Array, size: tuple[int, int]) -> Array:
    """Common class numbers in the given width and height, (H, W); each new pixel takes one old pixel's class."""
    label = opened(frame.label)
    if label.mode != "L":
        raise off(frame.label, f"it is {label.mode}", _LAYOUT)
    return looked_up(frame.label, label, lookup, size)


def looked_up(path: Path, label: Image.Image, lookup: Array, size: tuple[int, int]) -> Array:
    numbers = np.asarray(
        label if label.size == size else label.resize(size, Image.Resampling.NEAREST)
    )
    classes = lookup[numbers]
    if (unknown := classes == UNKNOWN).any():
        known = ", ".join(map(str, np.flatnonzero(lookup != UNKNOWN)))
        raise off(path, f"it has the class {numbers[unknown][0]}", f"classes among {known}")
    return classes


def opened(path: Path) -> Image.Image:
    """A decoded image file."""
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError) as error:  # Pillow says SyntaxError of a broken PNG
        raise off(path, f"it cannot be read ({error})", "a whole image file") from error
    return image


def off(path: Path, what: str, expected: str) -> UnseenError:
    return UnseenError(
        f"{path} is not as it should be: {what}; expected {expected}; {remedy(NAME)}"
    )
