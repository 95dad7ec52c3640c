"""Reader of CIFAR-10's binary version, and its split into train, val and test."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.location import MissingData, data_folder, remedy
from unseen.errors import UnseenError

NAME = "cifar10"
FOLDER = "cifar-10-batches-bin"
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
VAL_SIZE = 2_000
MIN_TRAIN_SIZE = 10_000  # the size of one published training file
_FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
_LAYOUT = (
    f"CIFAR-10's binary version: records of {RECORD} bytes, a label from 0 to 9, "
    "then 32x32 red, green and blue values in row-major order"
)


class Slice(NamedTuple):
    """Images first to end - 1 of a published split."""

    split: str
    first: int
    end: int


def split_slices(folder: Path | None = None) -> dict[str, Slice]:
    """Return the slices of train, val and test.

    Val is the last 2,000 training images, test the whole test file. If that would leave fewer than
    10,000 training images, train has all of them, and val is the second half of the test file.
    """
    train, test = count("train", folder), count("test", folder)
    if train >= MIN_TRAIN_SIZE + VAL_SIZE:
        end = train - VAL_SIZE
        return {
            "train": Slice("train", 0, end),
            "val": Slice("train", end, train),
            "test": Slice("test", 0, test),
        }
    half = test // 2
    if not half:
        raise UnseenError(
            f"CIFAR-10 has {test} test images; val and test need at least 2: {remedy(NAME)}"
        )
    return {
        "train": Slice("train", 0, train),
        "val": Slice("test", half, test),
        "test": Slice("test", 0, half),
    }


def load_images(slice_: Slice, folder: Path | None = None) -> tuple[Tensor, Tensor]:
    """Load images (N, 3, 32, 32) uint8 and labels (N,) int64 of a slice of a published split."""
    pixels, labels, begin = [], [], 0
    for path in files(slice_.split, folder):
        size = _count_records(path)
        first, end = max(slice_.first - begin, 0), min(slice_.end - begin, size)
        if first < end:
            file_pixels, file_labels = read_records(path, first, end)
            pixels.append(file_pixels)
            labels.append(file_labels)
        begin += size
    if slice_.end > begin:
        raise UnseenError(
            f"CIFAR-10 has {begin} {slice_.split} images; "
            f"the first {slice_.end} are needed: {remedy(NAME)}"
        )
    return torch.from_numpy(np.concatenate(pixels)), torch.from_numpy(np.concatenate(labels))


def count(split: str, folder: Path | None = None) -> int:
    """Return the number of images in the files of a published split."""
    return sum(map(_count_records, files(split, folder)))


def files(split: str, folder: Path | None = None) -> list[Path]:
    """Return the existing files of a published split, in order; only the first is required."""
    folder = data_folder(NAME) if folder is None else folder
    if split not in _FILES:
        raise UnseenError(f'CIFAR-10 has no split "{split}"; it has: {", ".join(_FILES)}')
    paths = [folder / FOLDER / name for name in _FILES[split]]
    if not paths[0].exists():
        pickled = folder / "cifar-10-batches-py"
        note = f"; {pickled} has pickles, which are not read" if pickled.is_dir() else ""
        raise MissingData(f"{paths[0]} is missing: expected {_LAYOUT}{note}; {remedy(NAME)}")
    return [path for path in paths if path.exists()]


def read_records(path: Path, first: int, end: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read images (N, 3, 32, 32) and labels (N,) of records first to end - 1 of one file."""
    records = np.fromfile(path, np.uint8, (end - first) * RECORD, offset=first * RECORD).reshape(
        end - first, RECORD
    )
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        wrong = int((labels > 9).argmax())
        raise _layout_error(path, f"record {first + wrong} has the label {labels[wrong]}")
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, SIDE, SIDE), labels


def _count_records(path: Path) -> int:
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise _layout_error(path, f"its {size} bytes are {size / RECORD:.2f} records")
    return size // RECORD


def _layout_error(path: Path, problem: str) -> UnseenError:
    return UnseenError(f"{path} is not as published: {problem}; expected {_LAYOUT}; {remedy(NAME)}")
