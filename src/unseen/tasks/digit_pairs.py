"""digit_pairs: from one collection of real digits to another, the paper's few-shot adaptation: usps->mnist and two more."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import Pictures
from unseen.errors import UnseenError
from unseen.models import DigitsNet
from unseen.tasks.digits import SPLITS

VARIANTS = ("usps_to_mnist", "mnist_to_svhn", "svhn_to_mnist")  # in the paper's order
TEST = ("test", 0, None)
# What a source is learned from, and what is held out of it: parts of the published training file. Negative: from its end,
# because a copy of SVHN may hold only some of the 73,257.
SOURCE: dict[str, dict[str, tuple[str, int, int | None]]] = {
    "mnist": SPLITS,
    "usps": {"train": ("train", 0, 6_000), "val": ("train", 6_000, None), "test": TEST},
    "svhn": {"train": ("train", 0, -500), "val": ("train", -500, None), "test": TEST},
}
TARGET: dict[str, tuple[str, int, int | None]] = {"train": ("train", 0, None), "test": TEST}
PRESETS: dict[str, dict[str, Any]] = {  # those of digits
    "fast": {
        "steps": 2000,
        "batch": 32,
        "lr": 1e-4,
        "uncertainty_guided": {"sites": ("conv1",), "mixed_weight": 0.0},
    },
    "paper": {"steps": 10_000, "batch": 32, "lr": 1e-4},
}


def task(variant: str = "usps_to_mnist") -> Task:
    if variant not in VARIANTS:
        raise UnseenError(f'digit_pairs has no variant "{variant}"; it has: {", ".join(VARIANTS)}')
    source, target = variant.split("_to_")
    return Task(
        name="digit_pairs",
        variant=variant,
        summary="USPS -> MNIST, MNIST -> SVHN or SVHN -> MNIST; real data, `unseen data fetch digits`; for few-shot adaptation",
        source=Domain(source, partial(_load, source, SOURCE[source])),
        targets=(Domain(f"{source}->{target}", partial(_load, target, TARGET)),),
        classes=10,
        model=DigitsNet,
        sites=("conv1", "conv2"),
        embedding="fc2",
        presets=PRESETS,
    )


def _load(domain: str, splits: dict[str, tuple[str, int, int | None]], split: str) -> TensorDataset:
    from unseen.data.digits import images  # Pillow and scipy: only where they are needed

    if split not in splits:
        raise UnseenError(f'{domain} has no split "{split}" here; it has: {", ".join(splits)}')
    return Pictures(*images(domain, *splits[split]))
