"""Bootstrap of a score of mean features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unseen.checks import check_fraction
from unseen.errors import UnseenError

Reduce = Callable[[Tensor], Tensor]  # score of mean features, (..., F) -> (...)

RESAMPLES = 1000  # enough for the ends of a 95 % interval
CHUNK_NUMBERS = 4_000_000  # of a table of resamples in memory at a time


def resampled_means(
    features: Tensor, size: int, resamples: int, generator: torch.Generator
) -> Tensor:
    """Return the means of `size` rows drawn with replacement, (N, F) -> (resamples, F), float64."""
    rows = features.double().cpu()
    means = rows.new_empty(resamples, rows.shape[1])
    # A matrix of draw counts times the rows is faster than gathering, and a chunk fits in memory.
    chunks = torch.split(means, max(1, CHUNK_NUMBERS // max(len(rows), size)))
    for chunk in chunks:
        index = torch.randint(len(rows), (len(chunk), size), generator=generator)
        counts = rows.new_zeros(len(chunk), len(rows))
        counts.scatter_add_(1, index, rows.new_ones(1).expand_as(index))
        chunk.copy_(counts @ rows / size)
    return means


def resampled_scores(
    features: Tensor, reduce: Reduce, resamples: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return the scores of bootstrap samples of the same size, (N, F) -> (resamples,)."""
    if features.dim() != 2 or len(features) == 0:
        raise UnseenError(
            "an interval needs score features (N, F) of at least one sample, "
            f"not {tuple(features.shape)}"
        )
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    means = resampled_means(features, len(features), resamples, generator)
    return reduce(means.to(features)).double().cpu()


def bootstrap_interval(
    features: Tensor,
    reduce: Reduce,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Return a confidence interval of the score of these samples' domain.

    Resampling adds its own scatter, which raises a score of absolute deviations. The resampled
    scores are therefore shifted so that their mean is the score itself.
    """
    check_fraction("the level of an interval", level)
    scores = resampled_scores(features, reduce, resamples, generator)
    shifted = scores + (float(reduce(features.mean(0))) - scores.mean())
    # A score that is never negative stays so after the shift.
    scores = shifted.clamp_min(0) if scores.min() >= 0 else shifted
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(scores, ends).tolist()
    return low, high


def bias_corrected_score(features: Tensor, reduce: Reduce, resamples: int) -> float:
    """Return the score minus its bootstrap bias: small samples have larger deviations."""
    plain = float(reduce(features.mean(0)))
    return 2 * plain - float(resampled_scores(features, reduce, resamples).mean())
