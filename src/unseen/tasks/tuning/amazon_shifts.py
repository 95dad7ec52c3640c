"""amazon_shifts: synthetic shifts of held-out reviews, to choose settings for `amazon_reviews`."""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.errors import UnseenError
from unseen.models import ReviewMLP
from unseen.tasks.amazon_reviews import PRESETS, SOURCES, load_source

VARIANTS = SOURCES
UNSEEN = ("shorter", "longer", "other_words", "other_topic", "less_telling")
# Held-out reviews 1,000 to 1,999 are shifted; the alarm is calibrated on others.
HELD_OUT = {"val": (0, 1000), "test": (2000, None)}


def task(variant: str = "books") -> Task:
    if variant not in VARIANTS:
        raise UnseenError(
            f'amazon_shifts has no variant "{variant}"; it has: {", ".join(VARIANTS)}'
        )
    return Task(
        name="amazon_shifts",
        variant=variant,
        summary="for tuning amazon_reviews: reviews -> shorter, longer or with other words",
        source=Domain(variant, partial(load_source, HELD_OUT, variant)),
        targets=tuple(
            Domain(f"{variant}->{name}", partial(_load, variant, name)) for name in UNSEEN
        ),
        classes=2,
        class_names=("negative", "positive"),
        model=ReviewMLP,
        sites=("fc1",),
        embedding="fc2",
        presets=PRESETS,
    )


def _load(source: str, shift: str, split: str) -> TensorDataset:
    from unseen.data.amazon_reviews import Counts
    from unseen.data.amazon_shifts import load_shift

    if split != "test":
        raise UnseenError(
            f'{shift} has no split "{split}", only test: '
            "amazon_shifts is for choosing settings, not for adaptation"
        )
    return Counts(*load_shift(source, shift))
