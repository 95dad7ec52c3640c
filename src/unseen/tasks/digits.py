"""digits: 10,000 MNIST images -> SVHN, MNIST-M, SYN and USPS."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import ByteImages
from unseen.data.location import data_root
from unseen.errors import UnseenError
from unseen.models import DigitsNet
from unseen.training.recipes import AFFINE, RECIPES

UNSEEN = ("svhn", "mnist_m", "syn", "usps")  # in the paper's order
TRAIN = ("train", 0, 10_000)  # the first 10,000 of MNIST's training file
SPLITS = {"train": TRAIN, "val": ("train", 10_000, 12_000), "test": ("test", 0, None)}
# The image recipe with a view for strokes: docs/tuning.md.
BEST: dict[str, Any] = {
    **RECIPES["image"].preset,
    "augment": [*RECIPES["image"].settings["augment"], [AFFINE, "texture"]],
    "views": 4,
    "steps": 4000,
    "batch_size": 32,
    "uncertainty_guided": {
        **RECIPES["image"].settings["uncertainty_guided"],
        "sites": ("conv1",),
        "mixup": None,
    },
}
PRESETS: dict[str, dict[str, Any]] = {
    # Noise at conv1 only, without mixed draws: docs/tuning.md.
    "fast": {
        "steps": 2000,
        "batch_size": 32,
        "lr": 1e-4,
        "uncertainty_guided": {"sites": ("conv1",), "mixup": None},
    },
    "reference": {
        "steps": 6000,
        "batch_size": 32,
        "lr": 1e-4,
        "uncertainty_guided": {"embedding": "relu4", "mixup": {"at": "relu2"}},
    },
    "paper": {"steps": 10_000, "batch_size": 32, "lr": 1e-4},
    "best": BEST,
}


def task() -> Task:
    return Task(
        name="digits",
        summary="MNIST -> SVHN, MNIST-M, SYN (if present) and USPS",
        source=Domain("mnist", partial(load_mnist, SPLITS)),
        targets=tuple(
            Domain(name, partial(_load, name)) for name in UNSEEN if name != "syn" or _has_syn()
        ),
        classes=10,
        model=DigitsNet,
        sites=("conv1", "conv2"),
        embedding="fc2",
        presets=PRESETS,
        score_at="embedding",
    )


def _has_syn() -> bool:
    """Return whether SYN is present; it is hard to obtain and therefore optional."""
    return (data_root() / "digits" / "syn" / "synth_test_32x32.mat").exists()


def load_mnist(splits: dict[str, tuple[str, int, int | None]], split: str) -> TensorDataset:
    """Load a split of MNIST, a slice of a published split."""
    from unseen.data.digits import load_images  # imports Pillow and scipy

    if split not in splits:
        raise UnseenError(f'the source mnist has no split "{split}"; it has: {", ".join(splits)}')
    published, first, end = splits[split]
    return ByteImages(*load_images("mnist", published, first, end))


def _load(domain: str, split: str) -> TensorDataset:
    from unseen.data.digits import load_images

    return ByteImages(*load_images(domain, split))
