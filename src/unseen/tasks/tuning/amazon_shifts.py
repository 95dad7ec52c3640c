"""amazon_shifts: where the settings of `amazon_reviews` are chosen. The same sources; unseen are synthetic shifts of each."""

from __future__ import annotations

from functools import partial

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.errors import UnseenError
from unseen.models import ReviewMLP
from unseen.tasks.amazon_reviews import PRESETS, SOURCES, load_source

VARIANTS = SOURCES
UNSEEN = ("shorter", "longer", "other_words", "other_topic", "less_telling")
# The shifts are made of held-out reviews 1,000 to 1,999: the alarm is calibrated on others.
HELD_OUT = {"val": (0, 1000), "test": (2000, None)}


def task(variant: str = "books") -> Task:
    if variant not in VARIANTS:
        raise UnseenError(
            f'amazon_shifts has no variant "{variant}"; it has: {", ".join(VARIANTS)}'
        )
    return Task(
        name="amazon_shifts",
        variant=variant,
        summary="reviews of one kind -> held-out ones made shorter, longer, of other words; to choose settings on",
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
    from unseen.data.amazon_shifts import shifted_counts

    if split != "test":
        raise UnseenError(
            f'{shift} has no split "{split}", only test: amazon_shifts is for choosing settings, not for adapting'
        )
    return Counts(*shifted_counts(source, shift))
