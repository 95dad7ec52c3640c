"""digits_shifts: synthetic shifts of held-out MNIST, to choose settings for `digits`."""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.data.images import ByteImages
from unseen.errors import UnseenError
from unseen.models import DigitsNet
from unseen.tasks.digits import PRESETS, TRAIN, load_mnist

UNSEEN = ("photo", "printed", "street", "scanner", "inverted")
# Training images 11,000 to 11,999 are shifted; the alarm is calibrated on others.
SPLITS = {"train": TRAIN, "val": ("train", 10_000, 11_000), "test": ("test", 0, None)}


def task() -> Task:
    return Task(
        name="digits_shifts",
        summary="for tuning digits: MNIST -> on photos, printed, on signs, scanned, inverted",
        source=Domain("mnist", partial(load_mnist, SPLITS)),
        targets=tuple(Domain(name, partial(_load, name)) for name in UNSEEN),
        classes=10,
        model=DigitsNet,
        sites=("conv1", "conv2"),
        embedding="fc2",
        score_at="embedding",
        presets=PRESETS,
    )


def _load(domain: str, split: str) -> TensorDataset:
    from unseen.data.digits_shifts import load_shift  # imports scikit-learn, one second

    if split != "test":
        raise UnseenError(
            f'{domain} has no split "{split}", only test: '
            "digits_shifts is for choosing settings, not for adaptation"
        )
    return ByteImages(*load_shift(domain))
