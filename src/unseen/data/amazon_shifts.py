"""Synthetic shifts of held-out source reviews, to choose the settings of `amazon_reviews` with no look at its unseen domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.amazon_reviews import Labels, held_out_counts, published
from unseen.errors import UnseenError

Array = NDArray[np.uint8]

SHIFTS = ("shorter", "longer", "other_words", "other_topic", "less_telling")
FIRST, END = (
    1000,
    2000,
)  # of the held-out reviews: 0 to 999 calibrate the alarm, those from 2,000 are the source's test
KEPT = 0.3  # of a review's words in a short one
RARE = 0.1  # a word that fewer of the training reviews use belongs to a topic, one that more use to the language
TELLING = 100  # words
_SEED = 5001  # any constant would do


def shifted_counts(source: str, shift: str) -> tuple[Tensor, Tensor]:
    """Counts (1000, 5000) uint8 and labels (1000,) int64 of one shift, the same bits at every call."""
    if shift not in SHIFTS:
        raise UnseenError(f"no shift {shift!r}; there are: {', '.join(SHIFTS)}")
    x, y = (t.numpy() for t in held_out_counts(source, FIRST, END))
    rng = np.random.default_rng([_SEED, SHIFTS.index(shift)])
    if shift == "shorter":
        x = rng.binomial(x, KEPT).astype(np.uint8)
    elif shift == "longer":
        x = joined(x, y, rng)
    elif shift == "other_words":
        x = x * (rng.random(x.shape[1]) < 0.5)
    else:
        trained_on, labels = published(source, "train")
        tells = telling(trained_on.toarray(), labels)
        used = (trained_on > 0).mean(axis=0).A1
        x = (
            without_the_most_telling(x, tells)
            if shift == "less_telling"
            else of_another_topic(x, tells, used, rng)
        )
    return torch.from_numpy(x.astype(np.uint8)), torch.from_numpy(y)


def telling(counts: Array, labels: Labels) -> NDArray[Any]:
    """How much the use of each word tells of the label: the two-sample z of its share in liking and disliking reviews."""
    used = counts > 0
    liked, disliked = used[labels == 1], used[labels == 0]
    share = (used.sum(0) + 1) / (
        len(used) + 2
    )  # one review more of each kind: a word nobody uses tells nothing
    return (liked.mean(0) - disliked.mean(0)) / np.sqrt(
        share * (1 - share) * (1 / len(liked) + 1 / len(disliked))
    )


def joined(counts: Array, labels: Labels, rng: np.random.Generator) -> Array:
    """Every review with another of the same label behind it."""
    partner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        ring = rng.permutation(np.flatnonzero(labels == label))
        partner[ring] = np.roll(ring, 1)
    return np.minimum(counts.astype(np.int64) + counts[partner], 255).astype(np.uint8)


def of_another_topic(
    counts: Array, tells: NDArray[Any], used: NDArray[Any], rng: np.random.Generator
) -> Array:
    """Rare words that tell nothing of the label change places, as when other things are spoken of."""
    topical = np.flatnonzero((np.abs(tells) < 1) & (used < RARE))
    out = counts.copy()
    out[:, topical] = counts[:, rng.permutation(topical)]
    return out


def without_the_most_telling(counts: Array, tells: NDArray[Any]) -> Array:
    """What the source praises and damns with most is not said of other things."""
    out = counts.copy()
    out[:, np.argsort(-np.abs(tells), kind="stable")[:TELLING]] = 0
    return out
