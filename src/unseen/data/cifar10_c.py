"""CIFAR-10-C: a user's published sets where they are, else our own corruptions of the test images, made once and kept."""

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
from unseen.data.cache import Arrays, made_once
from unseen.data.corruptions import CORRUPTIONS, SEVERITIES, VERSION, corrupted
from unseen.data.corruptions.weather import frost_folder, overlays
from unseen.data.location import data_folder, remedy
from unseen.errors import UnseenError

log = logging.getLogger("unseen")

PUBLISHED = "CIFAR-10-C"
SEED = 0  # any constant would do
_LAYOUT = (
    "the published sets: <corruption>.npy (50000, 32, 32, 3) of uint8, 10,000 images a severity from 1 to 5, "
    "and labels.npy (50000,)"
)


def images(corruption: str, severity: int) -> tuple[Tensor, Tensor]:
    """The examined test images under one corruption, (N, 3, 32, 32) uint8, and labels (N,) int64."""
    if corruption not in CORRUPTIONS or severity not in SEVERITIES:
        raise UnseenError(
            f"no corruption {corruption}/{severity}; there are: {', '.join(CORRUPTIONS)}, each /1 to /{len(SEVERITIES)}"
        )
    clean, labels = cifar10.images(cifar10.parts()["test"])
    folder = data_folder(cifar10.NAME) / PUBLISHED
    if folder.is_dir():
        pixels = published(folder, corruption, severity, labels.numpy())
    else:
        pixels = made(clean.permute(0, 2, 3, 1).numpy(), corruption, severity)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), labels


def published(
    folder: Path, corruption: str, severity: int, labels: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """The first images of one severity, as many as there are labels, which the published ones must equal."""
    path, labels_path = folder / f"{corruption}.npy", folder / "labels.npy"
    pixels, theirs = _mapped(path), _mapped(labels_path)
    if (
        pixels.dtype != np.uint8
        or pixels.ndim != 4
        or pixels.shape[1:] != (32, 32, 3)
        or len(pixels) % len(SEVERITIES)
    ):
        raise _off(path, f"it is {pixels.shape} of {pixels.dtype}")
    if theirs.shape != pixels.shape[:1]:
        raise _off(
            labels_path,
            f"it is {theirs.shape} of {theirs.dtype}, {path.name} has {len(pixels)} images",
        )
    size = len(pixels) // len(SEVERITIES)
    first = (severity - 1) * size
    if size < len(labels) or (theirs[first : first + len(labels)] != labels).any():
        raise _off(
            labels_path,
            f"at severity {severity} its labels are not those of the first {len(labels)} test images",
        )
    return pixels[first : first + len(labels)]


def made(clean: NDArray[np.uint8], corruption: str, severity: int) -> NDArray[np.uint8]:
    """Clean images (N, 32, 32, 3) corrupted, from the cache where it has them."""
    content = hashlib.sha256(clean.tobytes())
    if corruption == "frost":
        for piece in overlays(frost_folder()):
            content.update(piece.tobytes())
    depends_on = [content.hexdigest(), SEED, VERSION]

    def make() -> Arrays:
        _announce()
        return {"pixels": corrupted(clean, corruption, severity, SEED)}

    return made_once("cifar10_c", f"{corruption}/{severity}", depends_on, make)["pixels"]


@cache
def _announce() -> None:
    """Said once, not for each of 75 sets."""
    log.info(
        "no published CIFAR-10-C here: its corruptions are made of the test images, once, and kept"
    )


def _mapped(path: Path) -> NDArray:
    if not path.exists():
        raise UnseenError(
            f"{path} is missing: expected {_LAYOUT}; complete the folder, or take it away to have all corruptions made here"
        )
    try:
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _off(path, f"it cannot be read ({error})") from error


def _off(path: Path, what: str) -> UnseenError:
    return UnseenError(
        f"{path} is not as published: {what}; expected {_LAYOUT}; {remedy(cifar10.NAME)}"
    )
