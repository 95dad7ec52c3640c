"""Synthetic shifts of held-out source reviews, for tuning `amazon_reviews`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.amazon_reviews import Labels, held_out_counts, read_counts
from unseen.errors import UnseenError

Array = NDArray[np.uint8]

SHIFTS = ("shorter", "longer", "other_words", "other_topic", "less_telling")
# Slice of the held-out reviews: 0 to 999 calibrate the alarm, those from 2,000 test the source.
FIRST, END = 1000, 2000
KEEP_PROBABILITY = 0.3  # of a word in `shorter`
RARE = 0.1  # words in a smaller fraction of training reviews belong to a topic
REMOVED = 100  # words in `less_telling`
_SEED = 5001


def load_shift(source: str, shift: str) -> tuple[Tensor, Tensor]:
    """Return counts (1000, 5000) uint8 and labels (1000,) of one shift; deterministic."""
    if shift not in SHIFTS:
        raise UnseenError(f"no shift {shift!r}; there are: {', '.join(SHIFTS)}")
    x, y = (t.numpy() for t in held_out_counts(source, FIRST, END))
    rng = np.random.default_rng([_SEED, SHIFTS.index(shift)])
    if shift == "shorter":
        x = rng.binomial(x, KEEP_PROBABILITY).astype(np.uint8)
    elif shift == "longer":
        x = join_reviews(x, y, rng)
    elif shift == "other_words":
        x = x * (rng.random(x.shape[1]) < 0.5)
    else:
        train, labels = read_counts(source, "train")
        association = label_association(train.toarray(), labels)
        if shift == "less_telling":
            x = remove_predictive_words(x, association)
        else:
            frequency = (train > 0).mean(axis=0).A1
            x = permute_topic_words(x, association, frequency, rng)
    return torch.from_numpy(x.astype(np.uint8)), torch.from_numpy(y)


def label_association(counts: Array, labels: Labels) -> NDArray[Any]:
    """Compute each word's two-sample z statistic between positive and negative reviews."""
    used = counts > 0
    positive, negative = used[labels == 1], used[labels == 0]
    frequency = (used.sum(0) + 1) / (len(used) + 2)  # Laplace smoothing: z is 0 for unused words
    return (positive.mean(0) - negative.mean(0)) / np.sqrt(
        frequency * (1 - frequency) * (1 / len(positive) + 1 / len(negative))
    )


def join_reviews(counts: Array, labels: Labels, rng: np.random.Generator) -> Array:
    """Append to every review another one with the same label."""
    partner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        ring = rng.permutation(np.flatnonzero(labels == label))
        partner[ring] = np.roll(ring, 1)
    return np.minimum(counts.astype(np.int64) + counts[partner], 255).astype(np.uint8)


def permute_topic_words(
    counts: Array, association: NDArray[Any], frequency: NDArray[Any], rng: np.random.Generator
) -> Array:
    """Permute rare words that are not associated with the label, as in another topic."""
    topical = np.flatnonzero((np.abs(association) < 1) & (frequency < RARE))
    out = counts.copy()
    out[:, topical] = counts[:, rng.permutation(topical)]
    return out


def remove_predictive_words(counts: Array, association: NDArray[Any]) -> Array:
    """Remove the words most strongly associated with the label in the source."""
    out = counts.copy()
    out[:, np.argsort(-np.abs(association), kind="stable")[:REMOVED]] = 0
    return out
