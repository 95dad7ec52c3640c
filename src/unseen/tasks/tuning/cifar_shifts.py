"""cifar_shifts: where the settings of `cifar10_c` are chosen. Unseen are corruptions that are not among its 15."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data import cifar10
from unseen.data.images import Pictures
from unseen.errors import UnseenError
from unseen.tasks.cifar10_c import VARIANTS, load_source
from unseen.tasks.cifar10_c import task as cifar10_c

UNSEEN = tuple(
    (name, severity)
    for name in ("speckle_noise", "gaussian_blur", "saturate")
    for severity in (1, 3, 5)
)


def task(variant: str = VARIANTS[0]) -> Task:
    if variant not in VARIANTS:
        raise UnseenError(f'cifar_shifts has no variant "{variant}"; it has: {", ".join(VARIANTS)}')
    return replace(
        cifar10_c(variant),
        name="cifar_shifts",
        summary="CIFAR-10 -> held-out CIFAR-10 with speckles, blurred, paler or gaudier; to choose settings on",
        source=Domain("cifar10", _load_source),
        targets=tuple(
            Domain(f"{name}/{severity}", partial(_load, name, severity))
            for name, severity in UNSEEN
        ),
    )


def _halves() -> dict[str, cifar10.Part]:
    """The benchmark's held-out images: the first half calibrates the alarm, the second is corrupted."""
    split, first, end = cifar10.parts()["val"]
    middle = (first + end) // 2
    return {"val": cifar10.Part(split, first, middle), "shifted": cifar10.Part(split, middle, end)}


def _load_source(split: str) -> TensorDataset:
    if split == "train":
        return load_source("train")
    if split not in ("val", "test"):
        raise UnseenError(f'the source cifar10 has no split "{split}"; it has: train, val, test')
    return Pictures(*cifar10.images(_halves()["val" if split == "val" else "shifted"]))


def _load(corruption: str, severity: int, split: str) -> TensorDataset:
    import torch

    from unseen.data.cifar10_c import made  # scipy and Pillow: only where they are needed

    if split != "test":
        raise UnseenError(
            f'{corruption}/{severity} has no split "{split}", only test: cifar_shifts is for choosing settings'
        )
    clean, labels = cifar10.images(_halves()["shifted"])
    pixels = made(clean.permute(0, 2, 3, 1).numpy(), corruption, severity)
    return Pictures(torch.from_numpy(pixels).permute(0, 3, 1, 2), labels)
