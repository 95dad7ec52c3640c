"""mini_digits: a small version of `digits` made from data in installed packages; no download.

Source: scikit-learn's handwritten digits. Unseen domains: photo (like MNIST-M), printed (like SYN),
street (like SVHN), scanner (like USPS).
"""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.models import DigitsNet

# Noise at conv1 only, without mixed draws: docs/tuning.md.
FAST = {"sites": ("conv1",), "mixup": None}
UNSEEN = ("photo", "printed", "street", "scanner")


def task() -> Task:
    return Task(
        name="mini_digits",
        summary="handwritten digits -> on photos, printed, on street signs, scanned; no download",
        source=Domain("digits", partial(_load, "digits")),
        targets=tuple(Domain(name, partial(_load, name)) for name in UNSEEN),
        classes=10,
        model=DigitsNet,
        sites=("conv1", "conv2"),
        embedding="fc2",
        score_at="embedding",
        presets={
            # A higher lr than the paper's 1e-4 is better for ERM too.
            "fast": {"steps": 600, "batch_size": 32, "lr": 3e-4, "uncertainty_guided": FAST},
            "reference": {
                "steps": 6000, "batch_size": 32, "lr": 1e-4,
                "uncertainty_guided": {"embedding": "relu4", "mixup": {"at": "relu2"}},
            },
            "paper": {"steps": 10_000, "batch_size": 32, "lr": 1e-4},
        },
    )  # fmt: skip


def _load(domain: str, split: str) -> TensorDataset:
    from unseen.data.mini_digits import load_images  # imports scikit-learn, one second

    x, y = load_images(domain, split)
    return TensorDataset(x.float() / 255, y)
