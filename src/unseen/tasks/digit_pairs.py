"""digit_pairs: pairs of digit data sets for few-shot adaptation, e.g. USPS -> MNIST."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import ByteImages
from unseen.errors import UnseenError
from unseen.models import DigitsNet
from unseen.tasks.digits import BEST, SPLITS

VARIANTS = ("usps_to_mnist", "mnist_to_svhn", "svhn_to_mnist")  # in the paper's order
TEST = ("test", 0, None)
# Published split and slice for each split of a source. Negative indices count from the end, since
# a copy of SVHN may hold only part of the 73,257 images.
SOURCE: dict[str, dict[str, tuple[str, int, int | None]]] = {
    "mnist": SPLITS,
    "usps": {"train": ("train", 0, 6_000), "val": ("train", 6_000, None), "test": TEST},
    "svhn": {"train": ("train", 0, -500), "val": ("train", -500, None), "test": TEST},
}
TARGET: dict[str, tuple[str, int, int | None]] = {"train": ("train", 0, None), "test": TEST}
PRESETS: dict[str, dict[str, Any]] = {  # as in digits
    "fast": {
        "steps": 2000,
        "batch_size": 32,
        "lr": 1e-4,
        "uncertainty_guided": {"sites": ("conv1",), "mixup": None},
    },
    "paper": {"steps": 10_000, "batch_size": 32, "lr": 1e-4},
    "best": BEST,
}


def task(variant: str = "usps_to_mnist") -> Task:
    if variant not in VARIANTS:
        raise UnseenError(f'digit_pairs has no variant "{variant}"; it has: {", ".join(VARIANTS)}')
    source, target = variant.split("_to_")
    return Task(
        name="digit_pairs",
        variant=variant,
        summary="USPS -> MNIST, MNIST -> SVHN or SVHN -> MNIST, for few-shot adaptation",
        source=Domain(source, partial(_load, source, SOURCE[source])),
        targets=(Domain(f"{source}->{target}", partial(_load, target, TARGET)),),
        classes=10,
        model=DigitsNet,
        sites=("conv1", "conv2"),
        embedding="fc2",
        score_at="embedding",
        presets=PRESETS,
    )


def _load(domain: str, splits: dict[str, tuple[str, int, int | None]], split: str) -> TensorDataset:
    from unseen.data.digits import load_images  # imports Pillow and scipy

    if split not in splits:
        raise UnseenError(f'{domain} has no split "{split}" here; it has: {", ".join(splits)}')
    return ByteImages(*load_images(domain, *splits[split]))
