"""amazon_reviews: sentiment of product reviews, from one product category to three others."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import TensorDataset

from unseen.api import Domain, Task
from unseen.errors import UnseenError
from unseen.models import ReviewMLP
from unseen.training.recipes import RECIPES

SOURCES = ("books", "dvd", "electronics", "kitchen")
RAW = "_raw"  # suffix of variants with features extracted from the raw texts
VARIANTS = (*SOURCES, *(source + RAW for source in SOURCES))
# Published features: slices of the source's test file without training reviews.
HELD_OUT = {"val": (0, 2000), "test": (2000, None)}
# Raw texts: slices of the single file of a domain.
RAW_TRAIN_SIZE = 1400
RAW_SOURCE = {"train": (0, RAW_TRAIN_SIZE), "val": (RAW_TRAIN_SIZE, 1700), "test": (1700, None)}
RAW_TARGET = {"train": (0, 400), "test": (400, None)}
# The defaults for pixels are too large for word counts (docs/tuning.md).
PAPER: dict[str, Any] = {
    "steps": 1000,
    "batch_size": 32,
    "lr": 1e-4,
    "gud": {"ascent_lr": 0.0003},
    "m_ada": {"ascent_lr": 0.0003},
    "pgd": {"eps": 0.0003, "step_size": 0.000075},
}
PRESETS: dict[str, dict[str, Any]] = {
    # docs/tuning.md
    "fast": {
        **PAPER,
        "uncertainty_guided": {"noise": {"sign": "positive", "scale": 16.0}},
    },
    "paper": PAPER,
    "best": {**PAPER, **RECIPES["text"].preset, "binarise": True},
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
        summary="sentiment of reviews: books, DVDs, electronics or kitchen -> the other three",
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
    """Load a split of the source: the published training file, or held-out test reviews."""
    from unseen.data.amazon_reviews import Counts, held_out_counts, published_counts

    if split == "train":
        return Counts(*published_counts(source, "train"))
    return Counts(*held_out_counts(source, *_slice_of(held_out, source, split)))


def _load(source: str, domain: str, split: str) -> TensorDataset:
    from unseen.data.amazon_reviews import Counts, published_counts

    if domain == source:
        return load_source(HELD_OUT, source, split)
    return Counts(*published_counts(domain, split))


def _load_raw(source: str, domain: str, split: str) -> TensorDataset:
    from unseen.data.amazon_reviews import Counts, extract_counts

    parts = RAW_SOURCE if domain == source else RAW_TARGET
    bounds = _slice_of(parts, domain, split)
    return Counts(*extract_counts(source, RAW_TRAIN_SIZE, domain, *bounds))


def _slice_of(
    parts: dict[str, tuple[int, int | None]], domain: str, split: str
) -> tuple[int, int | None]:
    if split not in parts:
        raise UnseenError(f'{domain} has no split "{split}" here; it has: {", ".join(parts)}')
    return parts[split]
