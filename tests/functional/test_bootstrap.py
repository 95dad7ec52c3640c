"""Bootstrap intervals and bias correction, against slow code and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unseen import UnseenError
from unseen.functional.bootstrap import (
    bias_corrected_score,
    bootstrap_interval,
    resampled_means,
    resampled_scores,
)
from unseen.functional.scores import relative_deviation


def mean_score(features):
    return features.mean(-1)


def draw(n, generator, features=16):
    """Draw source samples whose features vary together, as channels do."""
    common = torch.randn(n, 1, generator=generator)
    values = 0.5 + 0.05 * torch.randn(n, features, generator=generator) + 0.03 * common
    return values.clamp(0.01, 1)


def test_resampled_means_match_slow_code():
    rows = torch.rand(9, 3, generator=torch.Generator().manual_seed(1))
    fast = resampled_means(rows, 4, 5, torch.Generator().manual_seed(2))
    index = torch.randint(9, (5, 4), generator=torch.Generator().manual_seed(2)).tolist()
    slow = [torch.stack([rows[i] for i in row]).double().mean(0) for row in index]
    torch.testing.assert_close(fast, torch.stack(slow))


def test_interval_covers_the_mean_at_its_level():
    covered = 0
    for seed in range(200):
        features = draw(40, torch.Generator().manual_seed(seed))
        low, high = bootstrap_interval(features, mean_score, level=0.9, resamples=400)
        covered += low <= 0.5 <= high
    assert 0.83 <= covered / 200 <= 0.96


def test_interval_of_a_deviation_contains_the_score_and_shrinks_with_the_sample():
    """Uncorrected resampling would raise it: most resampled scores exceed the score itself."""
    g = torch.Generator().manual_seed(0)
    source = torch.full((16,), 0.5)
    score = lambda mean: relative_deviation(mean, source.to(mean))  # noqa: E731
    widths = []
    for n in (30, 300, 3000):
        features = draw(n, g)
        low, high = bootstrap_interval(features, score)
        assert low < float(score(features.mean(0))) < high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    few = draw(30, g)
    assert float((resampled_scores(few, score, 300) > score(few.mean(0))).double().mean()) > 0.6
    assert bootstrap_interval(few - few.mean(0) + 0.5, score)[0] >= 0
    assert bootstrap_interval(few - 1, mean_score)[1] < 0  # a negative score stays negative


@pytest.mark.parametrize(
    "features, level, text",
    [
        (torch.ones(0, 2), 0.9, "at least one"),
        (torch.ones(3), 0.9, "N, F"),
        (torch.ones(3, 2), 1.0, "level"),
    ],
)
def test_interval_refuses_bad_arguments(features, level, text):
    with pytest.raises(UnseenError, match=text):
        bootstrap_interval(features, mean_score, level)


def test_bias_corrected_score_does_not_grow_when_the_sample_shrinks():
    g = torch.Generator().manual_seed(0)
    score = lambda mean: relative_deviation(mean, torch.full((8,), 0.48).to(mean))  # noqa: E731
    samples = [0.5 + 0.2 * torch.randn(12, 8, generator=g) for _ in range(200)]
    plain = np.mean([float(score(s.mean(0))) for s in samples])
    corrected = np.mean([bias_corrected_score(s, score, 400) for s in samples])
    true = 0.02 / 0.48
    # The bootstrap knows most of the excess, not all.
    assert plain > 2 * true and 0 < corrected - true < 0.6 * (plain - true)
