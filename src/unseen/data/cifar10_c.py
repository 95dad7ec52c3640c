"""CIFAR-10-C: the published sets if present, else corruptions computed once and cached."""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data import cifar10
from unseen.data.cache import Arrays, cached_arrays
from unseen.data.corruptions import CORRUPTIONS, SEVERITIES, VERSION, corrupt
from unseen.data.corruptions.weather import frost_folder, load_overlays
from unseen.data.location import data_folder, remedy
from unseen.errors import UnseenError

log = logging.getLogger("unseen")

FOLDER = "CIFAR-10-C"
SEED = 0
_LAYOUT = (
    "the published sets: <corruption>.npy (50000, 32, 32, 3) of uint8, 10,000 images for each "
    "severity from 1 to 5, and labels.npy (50000,)"
)


def load_images(corruption: str, severity: int) -> tuple[Tensor, Tensor]:
    """Load corrupted test images (N, 3, 32, 32) uint8 and labels (N,) int64."""
    if corruption not in CORRUPTIONS or severity not in SEVERITIES:
        raise UnseenError(
            f"no corruption {corruption}/{severity}; there are: {', '.join(CORRUPTIONS)}, "
            f"each /1 to /{len(SEVERITIES)}"
        )
    clean, labels = cifar10.load_images(cifar10.split_slices()["test"])
    folder = data_folder(cifar10.NAME) / FOLDER
    if folder.is_dir():
        pixels = read_published(folder, corruption, severity, labels.numpy())
    else:
        pixels = corrupt_cached(clean.permute(0, 2, 3, 1).numpy(), corruption, severity)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), labels


def read_published(
    folder: Path, corruption: str, severity: int, labels: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Read the first len(labels) images of one severity; the published labels must agree."""
    path, labels_path = folder / f"{corruption}.npy", folder / "labels.npy"
    pixels, published_labels = _open_array(path), _open_array(labels_path)
    if (
        pixels.dtype != np.uint8
        or pixels.ndim != 4
        or pixels.shape[1:] != (32, 32, 3)
        or len(pixels) % len(SEVERITIES)
    ):
        raise _layout_error(path, f"is {pixels.shape} of {pixels.dtype}")
    if published_labels.shape != pixels.shape[:1]:
        raise _layout_error(
            labels_path,
            f"is {published_labels.shape} of {published_labels.dtype}, "
            f"{path.name} has {len(pixels)} images",
        )
    size = len(pixels) // len(SEVERITIES)
    first = (severity - 1) * size
    if size < len(labels) or (published_labels[first : first + len(labels)] != labels).any():
        raise _layout_error(
            labels_path,
            f"its labels at severity {severity} differ from the first {len(labels)} test labels",
        )
    return pixels[first : first + len(labels)]


def corrupt_cached(clean: NDArray[np.uint8], corruption: str, severity: int) -> NDArray[np.uint8]:
    """Corrupt clean images (N, 32, 32, 3), with a cache on disk."""
    content = hashlib.sha256(clean.tobytes())
    if corruption == "frost":
        for overlay in load_overlays(frost_folder()):
            content.update(overlay.tobytes())
    depends_on = [content.hexdigest(), SEED, VERSION]

    def compute() -> Arrays:
        _log_once()
        return {"pixels": corrupt(clean, corruption, severity, SEED)}

    return cached_arrays("cifar10_c", f"{corruption}/{severity}", depends_on, compute)["pixels"]


@cache
def _log_once() -> None:
    log.info("CIFAR-10-C not found: computing corruptions of the test images, once")


def _open_array(path: Path) -> NDArray:
    if not path.exists():
        raise UnseenError(
            f"{path} is missing: expected {_LAYOUT}; complete the folder, or remove it to compute "
            "all corruptions"
        )
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except Exception as error:  # numpy may raise anything for a damaged header
        raise _layout_error(path, f"cannot be read ({error})") from error


def _layout_error(path: Path, problem: str) -> UnseenError:
    return UnseenError(
        f"{path} is not as published: {problem}; expected {_LAYOUT}; {remedy(cifar10.NAME)}"
    )
