"""CIFAR-10 in its binary layout, as many of its files as are there, and what of it is learned from, held out and examined."""

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
HELD_OUT = 2_000
LEARNED_FROM = 10_000  # at least: what one published training file holds
_FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
_LAYOUT = f"CIFAR-10's binary version: records of {RECORD} bytes, a label from 0 to 9, then 32x32 red, green and blue values row by row"


class Part(NamedTuple):
    """Images first to end - 1 of a published split."""

    split: str
    first: int
    end: int


def parts(folder: Path | None = None) -> dict[str, Part]:
    """What is learned from (train), held out (val) and examined (test).

    Val are the last 2,000 training images there are, and the whole test file is examined. Where that would leave fewer than
    10,000 to learn from, all are learned from: then val is the second half of the test file and the first half is examined.
    """
    train, test = count("train", folder), count("test", folder)
    if train >= LEARNED_FROM + HELD_OUT:
        kept = train - HELD_OUT
        return {
            "train": Part("train", 0, kept),
            "val": Part("train", kept, train),
            "test": Part("test", 0, test),
        }
    half = test // 2
    if not half:
        raise UnseenError(
            f"CIFAR-10 has {test} test images here; two are the least that can be held out and examined: {remedy(NAME)}"
        )
    return {
        "train": Part("train", 0, train),
        "val": Part("test", half, test),
        "test": Part("test", 0, half),
    }


def images(part: Part, folder: Path | None = None) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) uint8 and labels (N,) int64 of a part; the published files are read as if they were one."""
    pixels, labels, begin = [], [], 0
    for path in files(part.split, folder):
        size = _records(path)
        first, end = max(part.first - begin, 0), min(part.end - begin, size)
        if first < end:
            found = read(path, first, end)
            pixels.append(found[0])
            labels.append(found[1])
        begin += size
    if part.end > begin:
        raise UnseenError(
            f"CIFAR-10 has {begin} {part.split} images here; this needs the first {part.end}: {remedy(NAME)}"
        )
    return torch.from_numpy(np.concatenate(pixels)), torch.from_numpy(np.concatenate(labels))


def count(split: str, folder: Path | None = None) -> int:
    """How many images of a published split are there."""
    return sum(map(_records, files(split, folder)))


def files(split: str, folder: Path | None = None) -> list[Path]:
    """The files of a published split that are there, in order: any of the five for training, but the first."""
    folder = data_folder(NAME) if folder is None else folder
    if split not in _FILES:
        raise UnseenError(f'CIFAR-10 has no split "{split}"; it has: {", ".join(_FILES)}')
    paths = [folder / FOLDER / name for name in _FILES[split]]
    if not paths[0].exists():
        pickled = folder / "cifar-10-batches-py"
        instead = (
            f"; {pickled} is its Python version, whose pickles are not read"
            if pickled.is_dir()
            else ""
        )
        raise MissingData(f"{paths[0]} is missing: expected {_LAYOUT}{instead}; {remedy(NAME)}")
    return [path for path in paths if path.exists()]


def read(path: Path, first: int, end: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3, 32, 32) and labels (N,) of records first to end - 1 of one file."""
    records = np.fromfile(path, np.uint8, (end - first) * RECORD, offset=first * RECORD).reshape(
        end - first, RECORD
    )
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        wrong = int((labels > 9).argmax())
        raise _off(path, f"record {first + wrong} has the label {labels[wrong]}")
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, SIDE, SIDE), labels


def _records(path: Path) -> int:
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise _off(path, f"its {size} bytes are {size / RECORD:.2f} records")
    return size // RECORD


def _off(path: Path, what: str) -> UnseenError:
    return UnseenError(f"{path} is not as published: {what}; expected {_LAYOUT}; {remedy(NAME)}")
