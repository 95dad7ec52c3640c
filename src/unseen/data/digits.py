"""The real Digits benchmark: readers of the five published formats as they are, to (N, 3, 32, 32).

Nothing is converted on disk, and nothing is cached: the slowest, MNIST-M's folder of PNGs, takes 1.4 s for 4,501 images.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen.data.location import MissingData, data_folder, remedy
from unseen.errors import UnseenError

Array = NDArray[np.uint8]
Labels = NDArray[np.int64]

NAME = "digits"
SIDE = 32
# Where each domain's published splits are below digits/.
MAIN_FILE = {
    ("mnist", "train"): "mnist/train-images-idx3-ubyte.gz",
    ("mnist", "test"): "mnist/t10k-images-idx3-ubyte.gz",
    ("svhn", "train"): "svhn/train_32x32.mat",
    ("svhn", "test"): "svhn/test_32x32.mat",
    ("mnist_m", "train"): "mnist_m/mnist_m_train_labels.txt",
    ("mnist_m", "test"): "mnist_m/mnist_m_test_labels.txt",
    ("syn", "train"): "syn/synth_train_32x32.mat",
    ("syn", "test"): "syn/synth_test_32x32.mat",
    ("usps", "train"): "usps/zip.train.gz",
    ("usps", "test"): "usps/zip.test.gz",
}
# What they must look like.
_IDX = "an IDX file, gzipped or plain, of bytes: images (magic 0x00000803, N, 28, 28) and labels 0 to 9 (magic 0x00000801, N)"
_MAT = "a MATLAB 5 file with X (32, 32, 3, N) of uint8 and y of N labels, 1 to 9 and 10 for zero"
_ZIP = "text, gzipped or plain, one image a line: its label 0 to 9 and 16x16 values from -1 to 1"
_PNG = "a folder of 32x32 RGB PNGs beside a text file with a line `00000000.png 7` for each of them"


def images(
    domain: str, split: str, first: int = 0, end: int | None = None
) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) uint8 and labels (N,) int64 of a published split, or of its images first to end - 1.

    Grey images get three equal channels. MNIST's 28x28 are enlarged with Pillow's Lanczos filter, as in the preparation
    script of M-ADA, whose files the authors' release reads; USPS's 16x16, where no such script is published, bilinearly.
    """
    pixels, labels = originals(domain, split)
    if end is not None and len(labels) < end:
        path = data_folder(NAME) / MAIN_FILE[domain, split]
        raise UnseenError(
            f"{path} holds {len(labels)} images; this needs the first {end}: {remedy(NAME)}"
        )
    pixels, labels = pixels[first:end], labels[first:end]
    if pixels.ndim == 3:
        filter_ = Image.Resampling.LANCZOS if domain == "mnist" else Image.Resampling.BILINEAR
        pixels = np.repeat(resized(pixels, filter_)[:, None], 3, axis=1)
    return torch.from_numpy(pixels), torch.from_numpy(labels)


def originals(domain: str, split: str, folder: Path | None = None) -> tuple[Array, Labels]:
    """A published split in its own size: MNIST (N, 28, 28), USPS (N, 16, 16), the others (N, 3, 32, 32)."""
    if (domain, split) not in MAIN_FILE:
        known = ", ".join(f"{d}/{s}" for d, s in MAIN_FILE)
        raise UnseenError(f"the digits data has no {domain}/{split}; it has: {known}")
    folder = data_folder(NAME) if folder is None else folder
    return _READERS[domain](folder / MAIN_FILE[domain, split])


def resized(pixels: Array, filter_: Image.Resampling) -> Array:
    """Grey images (N, H, W) as (N, 32, 32)."""
    return np.stack(
        [np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), filter_)) for grey in pixels]
    )


def _mnist(path: Path) -> tuple[Array, Labels]:
    pixels = _idx(path, 3)
    if pixels.shape[1:] != (28, 28):
        raise _off(path, f"its images are {pixels.shape[1]}x{pixels.shape[2]}", _IDX)
    named = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    labels = _idx(named, 1).astype(np.int64)
    return _matched(path, pixels, labels, _IDX, labels_in=named)


def _idx(path: Path, axes: int) -> Array:
    content = _content(path, _IDX)
    header = 4 + 4 * axes
    if len(content) < header or content[:4] != bytes([0, 0, 8, axes]):
        raise _off(
            path,
            f"it begins with 0x{content[:4].hex()}, not 0x{bytes([0, 0, 8, axes]).hex()}",
            _IDX,
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    size, announced = len(content) - header, math.prod(shape)
    if size != announced:
        raise _off(
            path, f"its header announces {' x '.join(map(str, shape))} bytes, {size} follow", _IDX
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _usps(path: Path) -> tuple[Array, Labels]:
    try:
        table = np.loadtxt(io.BytesIO(_content(path, _ZIP)), ndmin=2)
    except ValueError as error:
        raise _off(path, str(error), _ZIP) from error
    if not table.size:
        raise _off(path, "it holds no image", _ZIP)
    if table.shape[1] != 1 + 16 * 16:
        raise _off(path, f"its lines have {table.shape[1]} numbers, not 257", _ZIP)
    values, labels = table[:, 1:], table[:, 0]
    if not (np.abs(values) <= 1).all():  # also false for NaN
        raise _off(path, f"its values run from {values.min():g} to {values.max():g}", _ZIP)
    if (labels % 1 != 0).any():
        raise _off(path, "a label is not a whole number", _ZIP)
    pixels = np.rint((values + 1) * 127.5).astype(np.uint8).reshape(-1, 16, 16)
    return _matched(path, pixels, labels.astype(np.int64), _ZIP)


def _mat(path: Path) -> tuple[Array, Labels]:
    from scipy.io import loadmat, whosmat  # half a second to import

    _must_exist(path)
    try:
        held = {name: shape for name, shape, _ in whosmat(path)}
        found: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except (
        Exception
    ) as error:  # scipy raises whatever a broken byte leads to, zlib.error and TypeError among them
        raise _off(path, f"it cannot be read ({type(error).__name__}: {error})", _MAT) from error
    if not {"X", "y"} <= found.keys():
        raise _off(
            path,
            f"it holds {', '.join(f'{name} {shape}' for name, shape in held.items()) or 'nothing'}",
            _MAT,
        )
    pixels, labels = found["X"], found["y"].ravel()
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (SIDE, SIDE, 3):
        raise _off(path, f"its X is {pixels.shape} of {pixels.dtype}", _MAT)
    if labels.dtype.kind not in "iuf" or (labels % 1 != 0).any():
        raise _off(path, "its y is not of whole numbers", _MAT)
    labels = labels.astype(np.int64)
    # SYN's copies differ in how they write zero; both ways at once would be eleven classes.
    if {0, 10} <= set(labels.tolist()):
        raise _off(path, "its labels use both 0 and 10", _MAT)
    return _matched(
        path,
        np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)),
        np.where(labels == 10, 0, labels),
        _MAT,
    )


def _mnist_m(path: Path) -> tuple[Array, Labels]:
    lines = [
        line.split()
        for line in _content(path, _PNG).decode(errors="replace").splitlines()
        if line.strip()
    ]
    for line in lines:
        if (
            len(line) != 2
            or not re.fullmatch("[0-9]{1,2}", line[1])
            or Path(line[0]).name != line[0]
        ):
            raise _off(path, f'it has the line "{" ".join(line)[:80]}"', _PNG)
    folder = path.with_name(path.name.removesuffix("_labels.txt"))
    if not folder.is_dir():
        raise MissingData(f"{folder} is missing: expected {_PNG}; {remedy(NAME)}")
    there = {file.name for file in folder.iterdir() if file.suffix == ".png"}
    absent = [name for name, _ in lines if name not in there]
    names = {name for name, _ in lines}
    if absent or not len(there) == len(lines) == len(names):
        example = (
            f", {absent[0]} is not among them"
            if absent
            else ""
            if len(names) == len(lines)
            else ", some more than once"
        )
        raise _off(
            path, f"it lists {len(lines)} images, {folder} holds {len(there)}{example}", _PNG
        )
    pixels = np.empty((len(lines), SIDE, SIDE, 3), np.uint8)
    for index, (name, _) in enumerate(lines):
        pixels[index] = _png(folder / name)
    labels = np.array([int(label) for _, label in lines], np.int64)
    return _matched(path, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels, _PNG)


def _png(path: Path) -> Array:
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError) as error:  # Pillow says SyntaxError of a broken PNG
        raise _off(path, f"it cannot be read ({error})", _PNG) from error
    if image.size != (SIDE, SIDE) or image.mode != "RGB":
        raise _off(path, f"it is {image.width}x{image.height} {image.mode}", _PNG)
    return np.asarray(image)


_READERS: dict[str, Callable[[Path], tuple[Array, Labels]]] = {
    "mnist": _mnist, "svhn": _mat, "mnist_m": _mnist_m, "syn": _mat, "usps": _usps,
}  # fmt: skip


def _content(path: Path, layout: str) -> bytes:
    """The bytes of a file, unzipped; browsers unzip what they download, with or without taking away the .gz."""
    plain = path.with_name(path.name.removesuffix(".gz"))
    path = path if path.exists() or not plain.exists() else plain
    _must_exist(path)
    raw = path.read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except EOFError:
        raise _off(path, "its gzip stream is cut short", layout) from None
    except (OSError, zlib.error) as error:
        raise _off(path, f"it cannot be unzipped ({error})", layout) from error


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise MissingData(f"{path} is missing; {remedy(NAME)}")


def _matched(
    path: Path, pixels: Array, labels: Labels, layout: str, labels_in: Path | None = None
) -> tuple[Array, Labels]:
    if len(pixels) != len(labels):
        raise _off(path, f"there are {len(pixels)} images and {len(labels)} labels", layout)
    if not len(labels):
        raise _off(path, "it holds no image", layout)
    if labels.min() < 0 or labels.max() > 9:
        raise _off(
            labels_in or path, f"its labels run from {labels.min()} to {labels.max()}", layout
        )
    return pixels, labels


def _off(path: Path, what: str, layout: str) -> UnseenError:
    return UnseenError(f"{path} is not as published: {what}; expected {layout}; {remedy(NAME)}")
