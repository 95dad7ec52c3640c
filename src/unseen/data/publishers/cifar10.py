"""CIFAR-10, the overlays of CIFAR-10-C's frost, and CIFAR-10-C itself for those who want the published pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unseen.data import cifar10, cifar10_c
from unseen.data.corruptions import CORRUPTIONS
from unseen.data.corruptions.weather import OVERLAYS, overlays
from unseen.data.location import MissingData
from unseen.data.publishers.parts import DataSet, Part

_PAGE, _LICENCE = "https://www.cs.toronto.edu/~kriz/cifar.html", "none stated"
_CIFAR10 = (
    f"get the binary version (cifar-10-binary.tar.gz, 162 MB) from {_PAGE} "
    "and unpack it in {folder}, so that it holds cifar-10-batches-bin/data_batch_1.bin and the others"
)
_FROST = (
    "the overlays are beside the publishers' own maker of corruptions: put the files frost*.png and frost*.jpg of "
    "ImageNet-C/create_c of https://github.com/hendrycks/robustness into {folder}/frost"
)
_CIFAR10_C = (
    "optional: without it the corruptions are made here, from the test images. Get CIFAR-10-C.tar (2.9 GB) from "
    "https://zenodo.org/records/2535967 and unpack it in {folder}, so that it holds CIFAR-10-C/labels.npy and the others"
)

_MAIN_FILE = {
    ("cifar10", "train"): f"{cifar10.FOLDER}/data_batch_1.bin",
    ("cifar10", "test"): f"{cifar10.FOLDER}/test_batch.bin",
    ("frost", "overlays"): f"frost/{OVERLAYS[0]}",
    ("cifar10_c", "test"): f"{cifar10_c.PUBLISHED}/labels.npy",
}

CIFAR10 = DataSet(
    "cifar10",
    "CIFAR-10 for the task cifar10_c",
    (
        Part("cifar10", "train", 50_000, True, _PAGE, _LICENCE, by_hand=_CIFAR10),
        Part("cifar10", "test", 10_000, True, _PAGE, _LICENCE, by_hand=_CIFAR10),
        Part("frost", "overlays", 5, True, "https://github.com/hendrycks/robustness", "Apache 2.0", by_hand=_FROST),
        Part("cifar10_c", "test", 750_000, False, "https://zenodo.org/records/2535967", "CC BY 4.0", by_hand=_CIFAR10_C),
    ),
    main_file=lambda part: _MAIN_FILE[part.domain, part.split],
    count=lambda part, folder: _count(part, folder),
    read_by=("cifar10_c", "cifar_shifts"),
    ways={"corruptions made here": ("cifar10 *", "frost *"), "CIFAR-10-C as published": ("cifar10 *", "cifar10_c *")},
)  # fmt: skip


def _count(part: Part, folder: Path) -> int:
    if part.domain == "cifar10":
        whole = cifar10.Part(part.split, 0, cifar10.count(part.split, folder))
        return len(cifar10.images(whole, folder)[1])
    if part.domain == "frost":
        return len(overlays(folder / "frost"))
    if not (folder / cifar10_c.PUBLISHED).is_dir():
        raise MissingData(f"{folder / cifar10_c.PUBLISHED} is not there")
    test = (
        cifar10.images(cifar10.Part("test", 0, cifar10.count("test", folder)), folder)[1]
        .numpy()
        .astype(np.int64)
    )
    return sum(
        len(cifar10_c.published(folder / cifar10_c.PUBLISHED, name, severity, test))
        for name in CORRUPTIONS
        for severity in range(1, 6)
    )
