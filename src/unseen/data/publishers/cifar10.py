"""CIFAR-10, the frost overlays, and optionally CIFAR-10-C as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unseen.data import cifar10, cifar10_c
from unseen.data.corruptions import CORRUPTIONS
from unseen.data.corruptions.weather import OVERLAYS, load_overlays
from unseen.data.location import MissingData
from unseen.data.publishers.parts import DataSet, Part

_PAGE, _LICENCE = "https://www.cs.toronto.edu/~kriz/cifar.html", "none stated"
_C_PAGE, _FROST_PAGE = (
    "https://zenodo.org/records/2535967",
    "https://github.com/hendrycks/robustness",
)
_CIFAR10 = (
    f"download the binary version (cifar-10-binary.tar.gz, 162 MB) from {_PAGE} and unpack it in "
    "{folder}, so that it contains cifar-10-batches-bin/data_batch_1.bin and the others"
)
_FROST = (
    "put the files frost*.png and frost*.jpg of ImageNet-C/create_c in "
    "https://github.com/hendrycks/robustness into {folder}/frost"
)
_CIFAR10_C = (
    "optional: without it the corruptions are computed from the test images. Download "
    "CIFAR-10-C.tar (2.9 GB) from https://zenodo.org/records/2535967 and unpack it in {folder}, "
    "so that it contains CIFAR-10-C/labels.npy and the others"
)

_MAIN_FILE = {
    ("cifar10", "train"): f"{cifar10.FOLDER}/data_batch_1.bin",
    ("cifar10", "test"): f"{cifar10.FOLDER}/test_batch.bin",
    ("frost", "overlays"): f"frost/{OVERLAYS[0]}",
    ("cifar10_c", "test"): f"{cifar10_c.FOLDER}/labels.npy",
}

CIFAR10 = DataSet(
    "cifar10",
    "CIFAR-10 for the task cifar10_c",
    (
        Part("cifar10", "train", 50_000, True, _PAGE, _LICENCE, by_hand=_CIFAR10),
        Part("cifar10", "test", 10_000, True, _PAGE, _LICENCE, by_hand=_CIFAR10),
        Part("frost", "overlays", 5, True, _FROST_PAGE, "Apache 2.0", by_hand=_FROST),
        Part("cifar10_c", "test", 750_000, False, _C_PAGE, "CC BY 4.0", by_hand=_CIFAR10_C),
    ),
    main_file=lambda part: _MAIN_FILE[part.domain, part.split],
    count=lambda part, folder: _count(part, folder),
    read_by=("cifar10_c", "cifar_shifts"),
    variants={
        "computed corruptions": ("cifar10 *", "frost *"),
        "CIFAR-10-C as published": ("cifar10 *", "cifar10_c *"),
    },
)


def _count(part: Part, folder: Path) -> int:
    if part.domain == "cifar10":
        return len(_labels(part.split, folder))
    if part.domain == "frost":
        return len(load_overlays(folder / "frost"))
    if not (folder / cifar10_c.FOLDER).is_dir():
        raise MissingData(f"{folder / cifar10_c.FOLDER} is missing")
    labels = _labels("test", folder).astype(np.int64)
    return sum(
        len(cifar10_c.read_published(folder / cifar10_c.FOLDER, name, severity, labels))
        for name in CORRUPTIONS
        for severity in range(1, 6)
    )


def _labels(split: str, folder: Path) -> NDArray[np.int64]:
    """Read all images of a published split, to check them, and return the labels."""
    whole = cifar10.Slice(split, 0, cifar10.count(split, folder))
    return cifar10.load_images(whole, folder)[1].numpy()
