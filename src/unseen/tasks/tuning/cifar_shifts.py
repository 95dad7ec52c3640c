"""cifar_shifts: other corruptions of held-out images, to choose settings for `cifar10_c`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data import cifar10
from unseen.data.images import ByteImages
from unseen.errors import UnseenError
from unseen.tasks import cifar10_c

VARIANTS = cifar10_c.VARIANTS
UNSEEN = tuple(
    (name, severity)
    for name in ("speckle_noise", "gaussian_blur", "saturate")
    for severity in (1, 3, 5)
)


def task(variant: str = VARIANTS[0]) -> Task:
    if variant not in VARIANTS:
        raise UnseenError(f'cifar_shifts has no variant "{variant}"; it has: {", ".join(VARIANTS)}')
    return replace(
        cifar10_c.task(variant),
        name="cifar_shifts",
        summary="for tuning cifar10_c: CIFAR-10 -> speckle noise, Gaussian blur, saturation",
        source=Domain("cifar10", _load_source),
        targets=tuple(
            Domain(f"{name}/{severity}", partial(_load, name, severity))
            for name, severity in UNSEEN
        ),
    )


def _halves() -> dict[str, cifar10.Slice]:
    """Halve the benchmark's held-out images: one half calibrates the alarm, one is corrupted."""
    split, first, end = cifar10.split_slices()["val"]
    middle = (first + end) // 2
    return {
        "val": cifar10.Slice(split, first, middle),
        "shifted": cifar10.Slice(split, middle, end),
    }


def _load_source(split: str) -> TensorDataset:
    if split == "train":
        return cifar10_c.load_source("train")
    if split not in ("val", "test"):
        raise UnseenError(f'the source cifar10 has no split "{split}"; it has: train, val, test')
    return ByteImages(*cifar10.load_images(_halves()["val" if split == "val" else "shifted"]))


def _load(corruption: str, severity: int, split: str) -> TensorDataset:
    import torch

    from unseen.data.cifar10_c import corrupt_cached  # imports scipy and Pillow

    if split != "test":
        raise UnseenError(
            f'{corruption}/{severity} has no split "{split}", only test: '
            "cifar_shifts is for choosing settings, not for adaptation"
        )
    clean, labels = cifar10.load_images(_halves()["shifted"])
    pixels = corrupt_cached(clean.permute(0, 2, 3, 1).numpy(), corruption, severity)
    return ByteImages(torch.from_numpy(pixels).permute(0, 3, 1, 2), labels)
