"""The alarm threshold, by simulation and on trained models."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from toy_domains import assert_source_batches_alarm_as_rarely_as_stated, bars, make

from unseen import UnseenError, calibrate
from unseen.detection import threshold as threshold_module
from unseen.detection.source_statistics import SourceStatistics
from unseen.detection.threshold import alarm_threshold
from unseen.experiments.score import score as score_run
from unseen.functional.scores import relative_deviation
from unseen.training.train import train


def draw(n, generator, features=16):
    """Draw source samples whose features vary together, as channels do."""
    common = torch.randn(n, 1, generator=generator)
    values = 0.5 + 0.05 * torch.randn(n, features, generator=generator) + 0.03 * common
    return values.clamp(0.01, 1)


@pytest.mark.parametrize("n", [8, 64, 300])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_source_batches_alarm_at_most_at_the_stated_rate(n, rate):
    """Over many calibrations, each with its own held-out samples."""
    alarms, trials = 0, 0
    for seed in range(25):
        g = torch.Generator().manual_seed(seed)
        mean = draw(1000, g).mean(0)
        score = lambda features: relative_deviation(features, mean)  # noqa: B023, E731
        threshold = alarm_threshold(draw(400, g), score, n, rate)
        batches = torch.stack([draw(n, g).mean(0) for _ in range(40)])
        alarms += int((score(batches) > threshold).sum())
        trials += 40
    slack = 3 * (rate * (1 - rate) / trials) ** 0.5
    # 0.3: the uncertainty of a quantile of 2000 resamples.
    assert alarms / trials <= rate + slack + 0.3 * rate


def test_threshold_falls_with_the_batch_size_and_a_shift_exceeds_it():
    g = torch.Generator().manual_seed(0)
    statistics = SourceStatistics(draw(1000, g).mean(0), draw(400, g))
    score = lambda mean: relative_deviation(mean, statistics.mean)  # noqa: E731
    thresholds = [statistics.threshold(score, n, 0.01) for n in (4, 32, 256)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert score(draw(32, g).mean(0) + 0.08) > thresholds[1]


@pytest.mark.parametrize(
    "rate, n, samples, text",
    [
        (0.0, 4, 5, "false-alarm rate"),
        (1.0, 4, 5, "false-alarm rate"),
        (0.1, 0, 5, "at least one"),
        (0.1, 4, 0, "load the run again"),
    ],
)
def test_threshold_refuses_bad_arguments(rate, n, samples, text):
    with pytest.raises(UnseenError, match=text):
        alarm_threshold(torch.ones(samples, 2), lambda m: m.mean(-1), n, rate)


def draw_uncertainty(n, g):
    """Draw the uncertainty of a confident model: near 0 but for a long tail."""
    return torch.sigmoid(3 * torch.randn(n, 1, generator=g) - 5).clamp(max=0.9)


@pytest.mark.parametrize("n", [8, 64, 300])
def test_a_long_tail_keeps_the_stated_rate(n):
    """With 200 held-out samples, most of the tail is unseen."""
    rate, alarms, trials = 0.1, 0, 0
    for seed in range(60):
        g = torch.Generator().manual_seed(seed)
        threshold = alarm_threshold(draw_uncertainty(200, g), lambda f: f.mean(-1), n, rate)
        means = draw_uncertainty(20 * n, g).view(20, n).mean(1)
        alarms += int((means > threshold).sum())
        trials += 20
    assert alarms / trials <= rate + 2 * (rate * (1 - rate) / trials) ** 0.5


# ---- trained models


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, folder, progress=False)


def test_fresh_source_batches_alarm_rarely_and_shifted_ones_alarm(run):
    net, size = run.load(make()), 20
    assert_source_batches_alarm_as_rarely_as_stated(net, size)
    grainy = [net.alarm(bars(size, seed=2000 + i, grain=0.5)[0], 0.01) for i in range(40)]
    assert np.mean(grainy) >= 0.95


def test_threshold_is_cached_until_the_next_calibration(run, monkeypatch):
    net, sizes = run.load(make()), []
    null_scores = threshold_module.null_scores

    def count(held_out, reduce, n):
        sizes.append(n)
        return null_scores(held_out, reduce, n)

    monkeypatch.setattr(threshold_module, "null_scores", count)
    x, _ = bars(16, 5)
    first = net.threshold(16)
    net.alarm(x), net.alarm(x)
    assert sizes == [16] and net.threshold(16) == first
    net.threshold(16, 0.05), net.threshold(8)
    assert sizes == [16, 16, 8]
    calibrate(net, [bars(64, 6)], [bars(64, 7, grain=0.3)])
    assert net.threshold(16) != first and sizes == [16, 16, 8, 16]


def test_score_of_a_run_has_an_interval_and_per_sample_scores(run, tmp_path):
    path = tmp_path / "scores.csv"
    result = score_run(run, make(), "foggy", batch=50, per_sample=path)
    assert result["score_interval"][0] < result["score"] < result["score_interval"][1]
    rows = list(csv.DictReader(path.open()))
    assert len({row["sample"] for row in rows}) == 50 and result["per_sample"] == str(path)
    net, x = run.load(make()), make().domain("foggy").load("test").tensors[0]
    chosen = x[[int(row["sample"]) for row in rows]]
    expected = net.uncertainty(chosen).tolist()
    assert [float(row["score"]) for row in rows] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert net.domain_score(chosen) == pytest.approx(result["score"], rel=1e-4)
    assert "per_sample" not in score_run(run, make(), "foggy", batch=50)


@pytest.mark.parametrize("n, held_out", [(1, 2000), (8, 500), (64, 500), (256, 2000)])
def test_nearly_every_calibration_keeps_the_stated_rate(n, held_out):
    """Of 50 calibrations at most 5 % exceed the rate by more than the sampling error."""
    rate, batches, exceeded = 0.05, 1000, 0
    for seed in range(50):
        g = torch.Generator().manual_seed(seed)
        mean = draw(2000, g).mean(0)
        score = lambda features: relative_deviation(features, mean)  # noqa: B023, E731
        threshold = alarm_threshold(draw(held_out, g), score, n, rate)
        fresh = draw(n * batches, g).reshape(batches, n, -1).mean(1)
        found = float((score(fresh) > threshold).double().mean())
        exceeded += found > rate + 2 * (rate * (1 - rate) / batches) ** 0.5
    assert exceeded <= 0.05 * 50


def test_threshold_of_a_huge_batch_is_made_at_once_and_is_not_too_low():
    held_out = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) + 5

    def reduce(mean):
        return (mean - 5).abs().mean(-1)

    huge = alarm_threshold(held_out, reduce, 10**15, 0.01)
    assert huge == alarm_threshold(held_out, reduce, 10_000, 0.01)
