"""The domain score and its threshold, against hand numbers and by simulation."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from toy_domains import assert_source_batches_alarm_as_rarely_as_stated, bars, make

from unseen import UnseenError, calibrate
from unseen.detection.source_statistics import (
    SourceStatistics,
    bootstrap_interval,
    lack_of_confidence,
    relative_deviation,
    resampled_means,
    resampled_scores,
)
from unseen.experiments import evaluate as exam
from unseen.training.train import train


def test_the_score_by_hand():
    source = torch.tensor([0.5, 0.2])
    assert relative_deviation(torch.tensor([0.6, 0.1]), source) == pytest.approx(
        (0.1 / 0.5 + 0.1 / 0.2) / 2
    )
    assert relative_deviation(source, source) == 0
    assert relative_deviation(torch.stack([source, 2 * source]), source).tolist() == [0, 1]


def test_lack_of_confidence_by_hand():
    logits = torch.log(torch.tensor([[0.7, 0.3], [0.5, 0.5]]))
    torch.testing.assert_close(lack_of_confidence(logits), torch.tensor([[0.3], [0.5]]))
    assert lack_of_confidence(torch.zeros(2, 4, 3, 3)).tolist() == [[0.75], [0.75]]


def drawn(n, generator, features=16):
    """Source samples whose features vary together, as channels do."""
    common = torch.randn(n, 1, generator=generator)
    return (0.5 + 0.05 * torch.randn(n, features, generator=generator) + 0.03 * common).clamp(
        0.01, 1
    )


@pytest.mark.parametrize("n", [8, 64, 300])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_fresh_source_batches_alarm_no_more_often_than_stated(n, rate):
    """Over many calibrations, each with its own held-out samples: the promise covers their scatter too."""
    alarms, trials = 0, 0
    for seed in range(25):
        g = torch.Generator().manual_seed(seed)
        reference = SourceStatistics(drawn(1000, g).mean(0), drawn(400, g))
        score = lambda mean: relative_deviation(mean, reference.mean)  # noqa: B023, E731
        threshold = reference.threshold(score, n, rate)
        batches = torch.stack([drawn(n, g).mean(0) for _ in range(40)])
        alarms += int((score(batches) > threshold).sum())
        trials += 40
    slack = 3 * (rate * (1 - rate) / trials) ** 0.5
    assert (
        alarms / trials <= rate + slack + 0.3 * rate
    )  # 0.3: what 2000 resamples leave uncertain about a quantile


def test_the_threshold_falls_with_the_batch_and_a_shift_exceeds_it():
    g = torch.Generator().manual_seed(0)
    reference = SourceStatistics(drawn(1000, g).mean(0), drawn(400, g))
    score = lambda mean: relative_deviation(mean, reference.mean)  # noqa: E731
    thresholds = [reference.threshold(score, n, 0.01) for n in (4, 32, 256)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert score(drawn(32, g).mean(0) + 0.08) > thresholds[1]


@pytest.mark.parametrize(
    "rate, n, text",
    [(0.0, 4, "false-alarm rate"), (1.0, 4, "false-alarm rate"), (0.1, 0, "at least one")],
)
def test_impossible_questions_are_named(rate, n, text):
    reference = SourceStatistics(torch.ones(2), torch.ones(5, 2))
    with pytest.raises(UnseenError, match=text):
        reference.threshold(lambda m: m.mean(-1), n, rate)


def test_a_scale_that_rounds_to_zero_on_the_source_does_not_make_the_score_nan():
    source = torch.tensor([0.0, 0.5])
    assert (
        float(relative_deviation(torch.tensor([0.0, 1.0]), source)) == 0.5
    )  # nothing deviates in the first channel
    assert float(relative_deviation(torch.tensor([1e-3, 0.5]), source)) > 1e6


def doubt(n, g):
    """The lack of confidence of a sure model: near 0 but for a long tail."""
    return torch.sigmoid(3 * torch.randn(n, 1, generator=g) - 5).clamp(max=0.9)


@pytest.mark.parametrize("n", [8, 64, 300])
def test_a_long_tail_does_not_break_the_promise(n):
    """With 200 held-out samples: most of a tail is then unseen."""
    rate, alarms, trials = 0.1, 0, 0
    for seed in range(60):
        g = torch.Generator().manual_seed(seed)
        threshold = SourceStatistics(doubt(500, g).mean(0), doubt(200, g)).threshold(
            lambda f: f.mean(-1), n, rate
        )
        alarms += int((doubt(20 * n, g).view(20, n).mean(1) > threshold).sum())
        trials += 20
    assert alarms / trials <= rate + 2 * (rate * (1 - rate) / trials) ** 0.5


# ------------------------------------------------------------------------------------------------------- intervals


def test_resampled_means_are_means_of_drawn_rows():
    rows = torch.rand(9, 3, generator=torch.Generator().manual_seed(1))
    made = resampled_means(rows, 4, 5, torch.Generator().manual_seed(2))
    picks = torch.randint(9, (5, 4), generator=torch.Generator().manual_seed(2))
    slow = torch.stack(
        [torch.stack([rows[i] for i in pick]).double().mean(0) for pick in picks.tolist()]
    )
    torch.testing.assert_close(made, slow)


def test_the_interval_holds_the_mean_as_often_as_it_says():
    held = 0
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        low, high = bootstrap_interval(drawn(40, g), lambda f: f.mean(-1), level=0.9, resamples=400)
        held += low <= 0.5 <= high
    assert 0.83 <= held / 200 <= 0.96


def test_the_interval_of_a_deviation_is_around_the_score_and_shrinks_with_the_sample():
    """Plain resampling would lift it: most resampled scores of samples that are like the source exceed their own."""
    g = torch.Generator().manual_seed(0)
    source = torch.full((16,), 0.5)
    score = lambda mean: relative_deviation(mean, source.to(mean))  # noqa: E731
    widths = []
    for n in (30, 300, 3000):
        features = drawn(n, g)
        value = float(score(features.mean(0)))
        low, high = bootstrap_interval(features, score)
        assert low < value < high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    few = drawn(30, g)
    assert (
        bootstrap_interval(few - few.mean(0) + 0.5, score)[0] >= 0
    )  # the mean is the source's, and no deviation is below zero
    assert bootstrap_interval(few - 1, lambda f: f.mean(-1))[1] < 0  # what may be negative stays so
    assert float((resampled_scores(few, score, 300) > score(few.mean(0))).double().mean()) > 0.6


@pytest.mark.parametrize(
    "features, level, text",
    [
        (torch.ones(0, 2), 0.9, "at least one"),
        (torch.ones(3), 0.9, "N, F"),
        (torch.ones(3, 2), 1.0, "level"),
    ],
)
def test_intervals_of_nothing_are_named(features, level, text):
    with pytest.raises(UnseenError, match=text):
        bootstrap_interval(features, lambda f: f.mean(-1), level)


# ------------------------------------------------------------------------------------------------- trained models


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def run(request, tmp_path_factory):
    return train(
        make(), request.param, tmp_path_factory.mktemp("runs") / request.param, progress=False
    )


def test_500_fresh_source_batches_alarm_as_rarely_as_stated_and_shifted_ones_alarm(run):
    """The calibration has seen none of this data: it is drawn anew."""
    net, size = run.load(make()), 20
    assert_source_batches_alarm_as_rarely_as_stated(net, size)
    grainy = [net.alarm(bars(size, seed=2000 + i, grain=0.5)[0], 0.01) for i in range(40)]
    assert np.mean(grainy) >= 0.95


def test_a_threshold_is_made_once_for_a_size_and_a_rate_and_anew_after_calibrating(
    run, monkeypatch
):
    net, made = run.load(make()), []
    real = SourceStatistics.chance_scores
    monkeypatch.setattr(
        SourceStatistics, "chance_scores", lambda *words: made.append(words[2]) or real(*words)
    )
    x, _ = bars(16, 5)
    first = net.threshold(16)
    net.alarm(x), net.alarm(x)
    assert made == [16] and net.threshold(16) == first
    net.threshold(16, 0.05), net.threshold(8)
    assert made == [16, 16, 8]
    calibrate(net, [bars(64, 6)], [bars(64, 7, grain=0.3)])
    assert net.threshold(16) != first and made == [16, 16, 8, 16]


def test_a_domains_score_comes_with_its_interval_and_that_of_every_sample(run, tmp_path):
    result = exam.score(run, make(), "foggy", batch=50, per_sample=tmp_path / "scores.csv")
    assert result["interval"][0] < result["score"] < result["interval"][1]
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert len({row["sample"] for row in rows}) == 50 and result["per_sample"] == str(
        tmp_path / "scores.csv"
    )
    net, x = run.load(make()), make().domain("foggy").load("test").tensors[0]
    chosen = x[[int(row["sample"]) for row in rows]]
    assert [float(row["score"]) for row in rows] == pytest.approx(
        net.uncertainty(chosen).tolist(), rel=1e-3, abs=1e-6
    )
    assert net.domain_score(chosen) == pytest.approx(result["score"], rel=1e-4)
    assert "per_sample" not in exam.score(run, make(), "foggy", batch=50)
