"""Writers of small digit files in the published layouts of MNIST, USPS, SVHN and MNIST-M."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from unseen.data import digits


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def write_mnist(
    root: Path, pixels: np.ndarray, labels: np.ndarray, split: str = "train", pack=gzip.compress
) -> None:
    folder = root / "digits/mnist"
    folder.mkdir(parents=True, exist_ok=True)
    name = {"train": "train", "test": "t10k"}[split]
    (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(pack(idx(pixels)))
    (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(pack(idx(labels)))


def write_usps(root: Path, rows: np.ndarray, split: str = "test") -> Path:
    path = root / f"digits/usps/zip.{split}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{label:.4f} " + " ".join(f"{v:.3f}" for v in values) + " \n" for label, *values in rows
    ]  # the space is theirs
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path


def write_mat(root: Path, domain: str = "svhn", split: str = "test", **arrays: np.ndarray) -> Path:
    path = root / "digits" / digits.MAIN_FILE[domain, split]
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, arrays, do_compression=True)
    return path


def write_mnist_m(root: Path, pixels: list[np.ndarray], listed: str) -> Path:
    path = root / "digits/mnist_m/mnist_m_test_labels.txt"
    (path.parent / "mnist_m_test").mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(path.parent / f"mnist_m_test/{i:08d}.png")
    path.write_text(listed)
    return path
