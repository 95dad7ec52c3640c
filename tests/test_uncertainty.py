"""The domain score and its threshold, against hand numbers and by simulation."""

from __future__ import annotations

import pytest
import torch

from unseen import UnseenError
from unseen.uncertainty import SourceReference, lack_of_confidence, relative_deviation


def test_the_score_by_hand():
    source = torch.tensor([0.5, 0.2])
    assert relative_deviation(torch.tensor([0.6, 0.1]), source) == pytest.approx((0.1 / 0.5 + 0.1 / 0.2) / 2)
    assert relative_deviation(source, source) == 0
    assert relative_deviation(torch.stack([source, 2 * source]), source).tolist() == [0, 1]


def test_lack_of_confidence_by_hand():
    logits = torch.log(torch.tensor([[0.7, 0.3], [0.5, 0.5]]))
    torch.testing.assert_close(lack_of_confidence(logits), torch.tensor([[0.3], [0.5]]))
    assert lack_of_confidence(torch.zeros(2, 4, 3, 3)).tolist() == [[0.75], [0.75]]


def drawn(n, generator, features=16):
    """Source samples whose features vary together, as channels do."""
    common = torch.randn(n, 1, generator=generator)
    return (0.5 + 0.05 * torch.randn(n, features, generator=generator) + 0.03 * common).clamp(0.01, 1)


@pytest.mark.parametrize("n", [8, 64, 300])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_fresh_source_batches_alarm_no_more_often_than_stated(n, rate):
    """Over many calibrations, each with its own held-out samples: the promise covers their scatter too."""
    alarms, trials = 0, 0
    for seed in range(25):
        g = torch.Generator().manual_seed(seed)
        reference = SourceReference(drawn(1000, g).mean(0), drawn(400, g))
        score = lambda mean: relative_deviation(mean, reference.mean)  # noqa: B023, E731
        threshold = reference.threshold(score, n, rate)
        batches = torch.stack([drawn(n, g).mean(0) for _ in range(40)])
        alarms += int((score(batches) > threshold).sum())
        trials += 40
    slack = 3 * (rate * (1 - rate) / trials) ** 0.5
    assert alarms / trials <= rate + slack + 0.3 * rate  # 0.3: what 2000 resamples leave uncertain about a quantile


def test_the_threshold_falls_with_the_batch_and_a_shift_exceeds_it():
    g = torch.Generator().manual_seed(0)
    reference = SourceReference(drawn(1000, g).mean(0), drawn(400, g))
    score = lambda mean: relative_deviation(mean, reference.mean)  # noqa: E731
    thresholds = [reference.threshold(score, n, 0.01) for n in (4, 32, 256)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert score(drawn(32, g).mean(0) + 0.08) > thresholds[1]


@pytest.mark.parametrize("rate, n, text", [(0.0, 4, "false-alarm rate"), (1.0, 4, "false-alarm rate"), (0.1, 0, "at least one")])
def test_impossible_questions_are_named(rate, n, text):
    reference = SourceReference(torch.ones(2), torch.ones(5, 2))
    with pytest.raises(UnseenError, match=text):
        reference.threshold(lambda m: m.mean(-1), n, rate)
