"""Readers of MNIST, SVHN, MNIST-M, SYN and USPS in their published formats."""

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

from unseen.data.images import UNREADABLE
from unseen.data.location import MissingData, data_folder, remedy
from unseen.errors import UnseenError

Array = NDArray[np.uint8]
Labels = NDArray[np.int64]

NAME = "digits"
SIDE = 32
# Path of each published split below digits/.
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
# File layouts, for error messages.
_IDX = (
    "an IDX file of bytes, gzipped or not: images (magic 0x00000803, N, 28, 28) and labels 0 to 9 "
    "(magic 0x00000801, N)"
)
_MAT = "a MATLAB 5 file with X (32, 32, 3, N) of uint8 and y with N labels, 1 to 9 and 10 for zero"
_ZIP = "text, gzipped or not, one image per line: a label 0 to 9 and 16x16 values from -1 to 1"
_PNG = "a folder of 32x32 RGB PNGs and a text file with a line `00000000.png 7` for each of them"


def load_images(
    domain: str, split: str, first: int = 0, end: int | None = None
) -> tuple[Tensor, Tensor]:
    """Load images (N, 3, 32, 32) uint8 and labels (N,) int64, images first to end - 1 of a split.

    Grey images get three equal channels. MNIST is resized with Pillow's Lanczos filter, as in the
    preparation script of M-ADA, which the authors' release uses; USPS is resized bilinearly.
    """
    pixels, labels = read_original(domain, split)
    if end is not None and len(labels) < end:
        path = data_folder(NAME) / MAIN_FILE[domain, split]
        raise UnseenError(
            f"{path} has {len(labels)} images; the first {end} are needed: {remedy(NAME)}"
        )
    pixels, labels = pixels[first:end], labels[first:end]
    if pixels.ndim == 3:
        resampling = Image.Resampling.LANCZOS if domain == "mnist" else Image.Resampling.BILINEAR
        pixels = np.repeat(resize(pixels, resampling)[:, None], 3, axis=1)
    return torch.from_numpy(pixels), torch.from_numpy(labels)


def read_original(domain: str, split: str, folder: Path | None = None) -> tuple[Array, Labels]:
    """Read a split in its own size: MNIST (N, 28, 28), USPS (N, 16, 16), others (N, 3, 32, 32)."""
    if (domain, split) not in MAIN_FILE:
        known = ", ".join(f"{d}/{s}" for d, s in MAIN_FILE)
        raise UnseenError(f"the digits data has no {domain}/{split}; it has: {known}")
    folder = data_folder(NAME) if folder is None else folder
    return _READERS[domain](folder / MAIN_FILE[domain, split])


def resize(pixels: Array, resampling: Image.Resampling) -> Array:
    """Resize grey images (N, H, W) to (N, 32, 32)."""
    return np.stack(
        [np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), resampling)) for grey in pixels]
    )


def _read_mnist(path: Path) -> tuple[Array, Labels]:
    pixels = _read_idx(path, 3)
    if pixels.shape[1:] != (28, 28):
        raise _layout_error(path, f"its images are {pixels.shape[1]}x{pixels.shape[2]}", _IDX)
    labels_path = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    labels = _read_idx(labels_path, 1).astype(np.int64)
    return _check_labels(path, pixels, labels, _IDX, labels_path)


def _read_idx(path: Path, axes: int) -> Array:
    content = _read_bytes(path, _IDX)
    header = 4 + 4 * axes
    if len(content) < header or content[:4] != bytes([0, 0, 8, axes]):
        raise _layout_error(
            path,
            f"starts with 0x{content[:4].hex()}, not 0x{bytes([0, 0, 8, axes]).hex()}",
            _IDX,
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    size = len(content) - header
    if size != math.prod(shape):
        raise _layout_error(
            path, f"its header states {' x '.join(map(str, shape))} bytes, {size} follow", _IDX
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read_usps(path: Path) -> tuple[Array, Labels]:
    try:
        table = np.loadtxt(io.BytesIO(_read_bytes(path, _ZIP)), ndmin=2)
    except ValueError as error:
        raise _layout_error(path, str(error), _ZIP) from error
    if not table.size:
        raise _layout_error(path, "contains no image", _ZIP)
    if table.shape[1] != 1 + 16 * 16:
        raise _layout_error(path, f"its lines have {table.shape[1]} numbers, not 257", _ZIP)
    values, labels = table[:, 1:], table[:, 0]
    if not (np.abs(values) <= 1).all():  # also false for NaN
        raise _layout_error(
            path, f"its values range from {values.min():g} to {values.max():g}", _ZIP
        )
    if (labels % 1 != 0).any():
        raise _layout_error(path, "a label is not an integer", _ZIP)
    pixels = np.rint((values + 1) * 127.5).astype(np.uint8).reshape(-1, 16, 16)
    return _check_labels(path, pixels, labels.astype(np.int64), _ZIP)


def _read_mat(path: Path) -> tuple[Array, Labels]:
    from scipy.io import loadmat, whosmat  # slow to import

    _check_exists(path)
    try:
        shapes = {name: shape for name, shape, _ in whosmat(path)}
        arrays: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # scipy may raise anything for a damaged file
        problem = f"cannot be read ({type(error).__name__}: {error})"
        raise _layout_error(path, problem, _MAT) from error
    if not {"X", "y"} <= arrays.keys():
        contents = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise _layout_error(path, f"contains {contents or 'nothing'}", _MAT)
    pixels, labels = arrays["X"], arrays["y"].ravel()
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (SIDE, SIDE, 3):
        raise _layout_error(path, f"its X is {pixels.shape} of {pixels.dtype}", _MAT)
    if labels.dtype.kind not in "iuf" or (labels % 1 != 0).any():
        raise _layout_error(path, "its y does not contain integers", _MAT)
    labels = labels.astype(np.int64)
    # Copies of SYN write zero as 0 or as 10; both in one file would make eleven classes.
    if {0, 10} <= set(labels.tolist()):
        raise _layout_error(path, "its labels use both 0 and 10", _MAT)
    return _check_labels(
        path,
        np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)),
        np.where(labels == 10, 0, labels),
        _MAT,
    )


def _read_mnist_m(path: Path) -> tuple[Array, Labels]:
    lines = [
        line.split()
        for line in _read_bytes(path, _PNG).decode(errors="replace").splitlines()
        if line.strip()
    ]
    for line in lines:
        if (
            len(line) != 2
            or not re.fullmatch("[0-9]{1,2}", line[1])
            or Path(line[0]).name != line[0]
        ):
            raise _layout_error(path, f'has the line "{" ".join(line)[:80]}"', _PNG)
    folder = path.with_name(path.name.removesuffix("_labels.txt"))
    if not folder.is_dir():
        raise MissingData(f"{folder} is missing: expected {_PNG}; {remedy(NAME)}")
    files = {file.name for file in folder.iterdir() if file.suffix == ".png"}
    missing = [name for name, _ in lines if name not in files]
    names = {name for name, _ in lines}
    if missing or not len(files) == len(lines) == len(names):
        detail = ""
        if missing:
            detail = f", {missing[0]} is not among them"
        elif len(names) != len(lines):
            detail = ", some more than once"
        raise _layout_error(
            path, f"lists {len(lines)} images, {folder} has {len(files)}{detail}", _PNG
        )
    pixels = np.empty((len(lines), SIDE, SIDE, 3), np.uint8)
    for index, (name, _) in enumerate(lines):
        pixels[index] = _read_png(folder / name)
    labels = np.array([int(label) for _, label in lines], np.int64)
    return _check_labels(path, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels, _PNG)


def _read_png(path: Path) -> Array:
    try:
        with Image.open(path) as image:
            image.load()
    except UNREADABLE as error:
        raise _layout_error(path, f"cannot be read ({error})", _PNG) from error
    if image.size != (SIDE, SIDE) or image.mode != "RGB":
        raise _layout_error(path, f"is {image.width}x{image.height} {image.mode}", _PNG)
    return np.asarray(image)


_READERS: dict[str, Callable[[Path], tuple[Array, Labels]]] = {
    "mnist": _read_mnist,
    "svhn": _read_mat,
    "mnist_m": _read_mnist_m,
    "syn": _read_mat,
    "usps": _read_usps,
}


def _read_bytes(path: Path, layout: str) -> bytes:
    """Read a file, decompressed; browsers may have decompressed it, with or without renaming."""
    plain = path.with_name(path.name.removesuffix(".gz"))
    path = path if path.exists() or not plain.exists() else plain
    _check_exists(path)
    raw = path.read_bytes()
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except EOFError:
        raise _layout_error(path, "its gzip stream is truncated", layout) from None
    except (OSError, zlib.error) as error:
        raise _layout_error(path, f"cannot be decompressed ({error})", layout) from error


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise MissingData(f"{path} is missing; {remedy(NAME)}")


def _check_labels(
    path: Path, pixels: Array, labels: Labels, layout: str, labels_path: Path | None = None
) -> tuple[Array, Labels]:
    if len(pixels) != len(labels):
        raise _layout_error(
            path, f"there are {len(pixels)} images and {len(labels)} labels", layout
        )
    if not len(labels):
        raise _layout_error(path, "contains no image", layout)
    if labels.min() < 0 or labels.max() > 9:
        raise _layout_error(
            labels_path or path, f"its labels range from {labels.min()} to {labels.max()}", layout
        )
    return pixels, labels


def _layout_error(path: Path, problem: str, layout: str) -> UnseenError:
    return UnseenError(f"{path} is not as published: {problem}; expected {layout}; {remedy(NAME)}")
