"""Street scenes with label maps in ten common classes: CamVid by day and at dusk, CARLA."""

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

from unseen.data.images import UNREADABLE
from unseen.data.location import MissingData, data_folder, remedy
from unseen.errors import UnseenError

Array = NDArray[np.uint8]
T = TypeVar("T")

NAME = "driving"
SIZE = (120, 90)  # width and height, half of the stored size
LARGE = (240, 180)
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
TRAIN_SHARE = 0.6  # leaves 115 of CamVid's day frames for val, to calibrate the alarm
# Folders of each domain below driving/; each is one drive, ordered by file name.
SEQUENCES = {
    "day": ("camvid/0006R0", "camvid/0016E5", "camvid/Seq05VD"),
    "dusk": ("camvid/0001TP",),
    "clear": ("carla/clear",),
}
# Common class of each class number: CamVid's 11 in SegNet's order and 11 for none, CARLA's tags.
COMMON = {
    "camvid": (*CLASSES, None, None),  # its tenth is bicyclists
    "carla_clear23": (
        *(None, "building", "fence", None, "person", "pole", "road", "road", "sidewalk"),
        *("vegetation", "vehicle", "building", "sign", "sky", None, "building", None, "fence"),
        *("sign", None, None, None, "vegetation"),
    ),
}
# Key of each domain in COMMON, or in a user's classes.json.
_LOOKUP = {"day": "camvid", "dusk": "camvid", "clear": "carla_clear23"}
_LAYOUT = "images/<name>.jpg and labels/<name>.png with class numbers, 8-bit grey, 255 for no class"
_TABLE = (
    'common10 with "names", the ten classes in order, and "lookup" with a list of class numbers '
    "for each data set"
)


class Scenes(TensorDataset):
    """Images and label maps stored as uint8, returned as floats in 0..1 and int64."""

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return x.float() / 255, y.long()


class Frame(NamedTuple):
    """Image and label file of one frame."""

    image: Path
    label: Path


def load_scenes(
    domain: str, split: str | None = None, size: tuple[int, int] = SIZE
) -> tuple[Tensor, Tensor]:
    """Load images (N, 3, H, W) and class maps (N, H, W), uint8, of a split or a domain."""
    lookup = class_lookup(domain)
    frames = [
        frame
        for drive in list_drives(domain)
        for frame in (drive if split is None else split_drive(drive, split, TRAIN_SHARE))
    ]
    for frame in frames:
        check_sizes(frame)
    pixels = np.stack([read_image(frame.image, size) for frame in frames])
    labels = np.stack([read_label(frame, lookup, size) for frame in frames])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def split_drive(frames: Sequence[T], split: str, train_share: float) -> Sequence[T]:
    """Return the contiguous part of a drive that belongs to a split of a source.

    Neighbouring frames are similar, so splits are not interleaved: the first `train_share` of the
    frames is train, the first half of the rest is val, the second half is test.
    """
    first = round(len(frames) * train_share)
    second = first + (len(frames) - first) // 2
    parts = {"train": frames[:first], "val": frames[first:second], "test": frames[second:]}
    if split not in parts:
        raise UnseenError(f'a source of driving has no split "{split}"; it has: {", ".join(parts)}')
    return parts[split]


def list_drives(domain: str, folder: Path | None = None) -> list[list[Frame]]:
    """Return the frames of each drive of a domain, in temporal order."""
    if domain not in SEQUENCES:
        raise UnseenError(
            f"the driving data has no domain {domain}; it has: {', '.join(SEQUENCES)}"
        )
    folder = data_folder(NAME) if folder is None else folder
    return [
        pair_files(folder / place / "images", folder / place / "labels", ".jpg", _LAYOUT)
        for place in SEQUENCES[domain]
    ]


def pair_files(images: Path, labels: Path, suffix: str, layout: str) -> list[Frame]:
    """Pair every image of a folder with its label map, ordered by name."""
    for folder in (images, labels):
        if not folder.is_dir():
            raise MissingData(f"{folder} is missing: expected {layout}; {remedy(NAME)}")
    names = sorted(file.stem for file in images.iterdir() if file.suffix == suffix)
    labelled = {file.stem for file in labels.iterdir() if file.suffix == ".png"}
    if not names:
        raise layout_error(images, f"contains no {suffix} file", layout)
    if unpaired := sorted(set(names) ^ labelled):
        raise layout_error(
            images.parent,
            f"{len(unpaired)} frames lack an image or a label map, e.g. {unpaired[0]}",
            layout,
        )
    return [Frame(images / f"{name}{suffix}", labels / f"{name}.png") for name in names]


def check_sizes(frame: Frame) -> None:
    """Raise an error if a label map and its image differ in size."""
    sizes = []
    for path in (frame.image, frame.label):
        try:
            with Image.open(path) as image:  # reads the header only
                sizes.append(image.size)
        except UNREADABLE as error:
            raise layout_error(path, f"cannot be read ({error})", "an intact image file") from error
    if sizes[0] != sizes[1]:
        image_size, label_size = (f"{width}x{height}" for width, height in sizes)
        raise layout_error(
            frame.label, f"is {label_size}", f"{image_size}, the size of {frame.image.name}"
        )


def count_frames(domain: str, folder: Path | None = None) -> int:
    """Decode every frame of a domain, to check it, and return their number."""
    lookup = class_lookup(domain, folder)
    frames = [frame for drive in list_drives(domain, folder) for frame in drive]
    for frame in frames:
        check_sizes(frame)
        open_image(frame.image)
        read_label(frame, lookup, SIZE)
    return len(frames)


def class_lookup(domain: str, folder: Path | None = None) -> Array:
    """Return the table (256,) from class numbers to common classes; classes.json has precedence."""
    path = (data_folder(NAME) if folder is None else folder) / "classes.json"
    if not path.exists():
        names = COMMON[_LOOKUP[domain]]
        return _make_table([IGNORE if name is None else CLASSES.index(name) for name in names])
    try:
        common = json.loads(path.read_text())["common10"]
        class_names, numbers = tuple(common["names"]), list(common["lookup"][_LOOKUP[domain]])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise layout_error(path, f"{type(error).__name__}: {error}", _TABLE) from error
    if class_names != CLASSES:
        raise layout_error(
            path,
            f"its names are {', '.join(map(str, class_names))}",
            f"{_TABLE}: {', '.join(CLASSES)}",
        )
    if (
        not all(type(n) is int and (0 <= n < len(CLASSES) or n == IGNORE) for n in numbers)
        or not 0 < len(numbers) < IGNORE
    ):
        raise layout_error(
            path,
            f"its lookup of {_LOOKUP[domain]} is {numbers}",
            f"numbers from 0 to {len(CLASSES) - 1}, or {IGNORE}",
        )
    return _make_table(numbers)


UNKNOWN = 254  # marks class numbers that the data set does not have


def _make_table(numbers: list[int]) -> Array:
    table = np.full(256, UNKNOWN, np.uint8)
    table[: len(numbers)] = numbers
    table[IGNORE] = IGNORE
    return table


def read_image(path: Path, size: tuple[int, int]) -> Array:
    """Read an image in the given width and height, (H, W, 3), resized by area averaging."""
    image = open_image(path).convert("RGB")
    return np.asarray(image if image.size == size else image.resize(size, Image.Resampling.BOX))


def read_label(frame: Frame, lookup: Array, size: tuple[int, int]) -> Array:
    """Read common class numbers in the given width and height, (H, W), nearest neighbour."""
    label = open_image(frame.label)
    if label.mode != "L":
        raise layout_error(frame.label, f"is {label.mode}", _LAYOUT)
    return apply_lookup(frame.label, label, lookup, size)


def apply_lookup(path: Path, label: Image.Image, lookup: Array, size: tuple[int, int]) -> Array:
    """Resize a label image and map its class numbers."""
    numbers = np.asarray(
        label if label.size == size else label.resize(size, Image.Resampling.NEAREST)
    )
    classes = lookup[numbers]
    if (unknown := classes == UNKNOWN).any():
        known = ", ".join(map(str, np.flatnonzero(lookup != UNKNOWN)))
        raise layout_error(path, f"has the class {numbers[unknown][0]}", f"classes among {known}")
    return classes


def open_image(path: Path) -> Image.Image:
    """Open and decode an image file."""
    try:
        with Image.open(path) as image:
            image.load()
    except UNREADABLE as error:
        raise layout_error(path, f"cannot be read ({error})", "an intact image file") from error
    return image


def layout_error(path: Path, problem: str, expected: str) -> UnseenError:
    return UnseenError(f"{path} is not as expected: {problem}; expected {expected}; {remedy(NAME)}")
