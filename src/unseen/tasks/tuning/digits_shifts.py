"""digits_shifts: where the settings of `digits` are chosen. The same source; unseen are synthetic shifts of held-out MNIST."""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import Pictures
from unseen.errors import UnseenError
from unseen.models import DigitsNet
from unseen.tasks.digits import PRESETS, TRAINED_ON, load_mnist

UNSEEN = ("photo", "printed", "street", "scanner", "inverted")
# The shifts are made of training images 11,000 to 11,999: the alarm is calibrated on others.
SPLITS = {"train": TRAINED_ON, "val": ("train", 10_000, 11_000), "test": ("test", 0, None)}


def task() -> Task:
    return Task(
        name="digits_shifts",
        summary="MNIST -> held-out MNIST on photos, printed, on street signs, scanned, inverted; to choose settings on",
        source=Domain("mnist", partial(load_mnist, SPLITS)),
        targets=tuple(Domain(name, partial(_load, name)) for name in UNSEEN),
        classes=10,
        model=DigitsNet,
        sites=("conv1", "conv2"),
        embedding="fc2",
        presets=PRESETS,
    )


def _load(domain: str, split: str) -> TensorDataset:
    from unseen.data.digits_shifts import (
        images,  # scikit-learn takes a second to import: only where it is needed
    )

    if split != "test":
        raise UnseenError(
            f'{domain} has no split "{split}", only test: digits_shifts is for choosing settings, not for adapting'
        )
    return Pictures(*images(domain))
