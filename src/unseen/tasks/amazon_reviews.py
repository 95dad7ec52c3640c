"""amazon_reviews: like or dislike. Learned from reviews of one kind of product, asked of three others: twelve transfers."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.errors import UnseenError
from unseen.models import ReviewMLP

SOURCES = ("books", "dvd", "electronics", "kitchen")
RAW = "_raw"  # ends the variants whose features we extract ourselves
VARIANTS = (*SOURCES, *(source + RAW for source in SOURCES))
# Published features: of the source's own test file, what was not trained on.
HELD_OUT = {"val": (0, 2000), "test": (2000, None)}
# Raw texts: there is one file a domain.
TRAINED_ON_RAW = 1400
RAW_SOURCE = {"train": (0, TRAINED_ON_RAW), "val": (TRAINED_ON_RAW, 1700), "test": (1700, None)}
RAW_TARGET = {"train": (0, 400), "test": (400, None)}
# At their own rates for pixels, adversarial samples leave what counts of words can be (results/tuning.md).
PRINTED: dict[str, Any] = {
    "steps": 1000, "batch": 32, "lr": 1e-4,
    "gud": {"ascent_lr": 0.0003}, "m_ada": {"ascent_lr": 0.0003}, "pgd": {"eps": 0.0003, "step_size": 0.000075},
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "fast": {
        **PRINTED,
        "uncertainty_guided": {"noise_sign": "positive", "noise_scale": 16.0},
    },  # results/tuning.md
    "paper": PRINTED,
}


def task(variant: str = "books") -> Task:
    if variant not in VARIANTS:
        raise UnseenError(
            f'amazon_reviews has no variant "{variant}"; it has: {", ".join(VARIANTS)}'
        )
    source, load = variant.removesuffix(RAW), _load_raw if variant.endswith(RAW) else _load
    return Task(
        name="amazon_reviews",
        variant=variant,
        summary="reviews of books, DVDs, electronics or kitchen things -> of the other three; real data",
        source=Domain(source, partial(load, source, source)),
        targets=tuple(
            Domain(f"{source}->{name}", partial(load, source, name))
            for name in SOURCES
            if name != source
        ),
        classes=2,
        class_names=("negative", "positive"),
        model=ReviewMLP,
        sites=("fc1",),
        embedding="fc2",
        presets=PRESETS,
    )


def load_source(
    held_out: dict[str, tuple[int, int | None]], source: str, split: str
) -> TensorDataset:
    """A split of the source: its published training file, or a part of what only its test file has."""
    from unseen.data.amazon_reviews import (  # scipy: only where it is needed
        Counts,
        counts,
        held_out_counts,
    )

    if split == "train":
        return Counts(*counts(source, "train"))
    return Counts(*held_out_counts(source, *_part(held_out, source, split)))


def _load(source: str, domain: str, split: str) -> TensorDataset:
    from unseen.data.amazon_reviews import Counts, counts

    return (
        load_source(HELD_OUT, source, split) if domain == source else Counts(*counts(domain, split))
    )


def _load_raw(source: str, domain: str, split: str) -> TensorDataset:
    from unseen.data.amazon_reviews import Counts, extracted_counts

    parts = RAW_SOURCE if domain == source else RAW_TARGET
    return Counts(*extracted_counts(source, TRAINED_ON_RAW, domain, *_part(parts, domain, split)))


def _part(
    parts: dict[str, tuple[int, int | None]], domain: str, split: str
) -> tuple[int, int | None]:
    if split not in parts:
        raise UnseenError(f'{domain} has no split "{split}" here; it has: {", ".join(parts)}')
    return parts[split]
