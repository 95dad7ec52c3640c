"""The accuracy estimator: its estimates on a toy task, its intervals, its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from toy_domains import BarNet, bars, make

import unseen
from unseen import AccuracyEstimator, UnseenError, estimate_accuracy
from unseen.detection.accuracy import ShiftPoint
from unseen.detection.synthetic_shifts import MOVING
from unseen.functional.confidence import (
    average_confidence,
    average_thresholded_confidence,
    negative_entropy,
)
from unseen.training.train import train

FORMAT_1 = Path(__file__).parents[1] / "format_1"


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def net(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, out, progress=False).load(make())


@pytest.fixture(scope="module")
def fitted(net):
    return AccuracyEstimator.fit(net, DataLoader(TensorDataset(*bars(300, 2)), 64))


def accuracy(net, x, y):
    return float((net.predict(x).argmax(1) == y).float().mean())


def atc(net, x, estimator):
    confidence = negative_entropy(net.predict(x))
    return average_thresholded_confidence(confidence, estimator.confidence_threshold)


def test_estimate_falls_with_the_shift_and_its_interval_holds_the_accuracy(net, fitted):
    """On kinds of shift that the estimator was not fitted with: fog, and other strengths."""
    clean = estimate_accuracy(net, bars(300, 50)[0], fitted)
    covered = []
    for shift in ({"fog": 0.3}, {"fog": 0.6}, {"grain": 0.2}, {"grain": 0.6}, {"light": 0.4}, {}):
        x, y = bars(300, 51, **shift)
        estimate = fitted.estimate(net, x)
        assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1 and estimate.n == 300
        covered.append(estimate.low - 0.03 <= accuracy(net, x, y) <= estimate.high + 0.03)
    assert sum(covered) >= 5  # of 6, at 90 %
    assert abs(clean.accuracy - fitted.points[0].accuracy) < 0.1
    assert fitted.estimate(net, bars(300, 52, grain=0.6)[0]).accuracy < clean.accuracy


def test_baselines_of_an_estimate_match_their_formulas(net, fitted):
    x, _ = bars(300, 60, grain=0.3)
    estimate, logits = fitted.estimate(net, x), net.predict(x)
    confidence = estimate.average_confidence
    assert confidence.accuracy == pytest.approx(average_confidence(logits), abs=1e-5)
    assert 0 <= confidence.low <= confidence.accuracy <= confidence.high <= 1
    assert estimate.atc == pytest.approx(atc(net, x, fitted))
    x, y = bars(300, 2)
    assert atc(net, x, fitted) == pytest.approx(accuracy(net, x, y), abs=1e-6)


def test_estimator_accepts_a_detector_of_its_own(net):
    detector = unseen.detection.Entropy(net)
    estimator = AccuracyEstimator.fit(detector, [bars(60, 2)])
    assert estimator.detector == "entropy"
    assert 0 <= estimator.estimate(detector, bars(20, 3)[0]).accuracy <= 1


def test_score_beyond_every_shift_extrapolates_down_to_chance(fitted):
    furthest = max(p.score for p in fitted.points)
    near, far = (fitted.at_score(v, v, v) for v in (furthest * 0.5, furthest * 1.5))
    assert far.extrapolates and far.low <= 1 / 3 and not near.extrapolates
    uncertainty = max(p.uncertainty for p in fitted.points) + 0.01
    assert fitted.at_uncertainty(uncertainty, uncertainty, uncertainty).extrapolates


def test_interval_of_confidence_is_made_of_its_errors_under_similar_shifts():
    pairs = (("a", 0.7), ("b", 0.8), ("c", 0.85))
    points = [ShiftPoint((kind,), 0.1, 0.2, value) for kind, value in pairs]
    interval = AccuracyEstimator("sigma", 4, 0.0, 10, points).at_uncertainty(0.15, 0.13, 0.18)
    assert interval == pytest.approx((0.85, 0.82 - 0.1, 0.87 + 0.05, False))


def test_small_sample_has_a_wider_interval(net, fitted):
    x, _ = bars(300, 70, grain=0.25)
    few, many = (fitted.estimate(net, x[:n]) for n in (8, 300))
    assert few.high - few.low >= many.high - many.low


def test_estimator_is_saved_and_loaded(net, fitted, tmp_path):
    fitted.save(tmp_path / "accuracy.json")
    again = AccuracyEstimator.load(tmp_path / "accuracy.json")
    x, _ = bars(100, 80)
    assert again == fitted and again.estimate(net, x) == fitted.estimate(net, x)


def test_estimator_of_format_2_is_read():
    old = json.loads((FORMAT_1 / "finished" / "accuracy.json").read_text())
    estimator = AccuracyEstimator.load(FORMAT_1 / "finished" / "accuracy.json")
    at_embedding = old["score_at"] == "embedding"
    assert estimator.detector == ("embedding_shift" if at_embedding else old["score_name"])
    assert estimator.confidence_threshold == old["certainty_threshold"]
    assert [p.uncertainty for p in estimator.points] == [p["doubt"] for p in old["points"]]


@pytest.mark.parametrize(
    "content, text",
    [
        ({}, "not an accuracy estimator of this version"),
        ({"format": 3, "points": [1]}, "fit it again"),
        ({"format": 2, "points": [1]}, "fit it again"),
        (
            {"format": 3, "detector": "sigma", "classes": 3, "confidence_threshold": 0}
            | {"samples": 1, "points": []},
            "3 kinds",
        ),
    ],
)
def test_damaged_file_is_refused(content, text, tmp_path):
    (tmp_path / "damaged.json").write_text(json.dumps(content))
    with pytest.raises(UnseenError, match=text):
        AccuracyEstimator.load(tmp_path / "damaged.json")


def test_fit_refuses_bad_arguments(net):
    x, y = bars(20, 1)
    with pytest.raises(UnseenError, match=r"unseen.ERM\(model\)"):
        AccuracyEstimator.fit(BarNet(), [(x, y)])
    with pytest.raises(UnseenError, match="held_out is empty"):
        AccuracyEstimator.fit(net, [])
    with pytest.raises(UnseenError, match="at least 3 kinds"):
        AccuracyEstimator.fit(net, [(x, y)], shifts={"one": [lambda x, g: x]})
    shrinking = {kind: [lambda x, g: (x[0][:3],)] for kind in "abc"}
    with pytest.raises(UnseenError, match="keep the shapes"):
        AccuracyEstimator.fit(net, [(x, y)], shifts=shrinking)


def test_estimate_refuses_bad_arguments(net, fitted):
    x, _ = bars(20, 1)
    with pytest.raises(UnseenError, match="x is empty"):
        fitted.estimate(net, x[:0])
    with pytest.raises(UnseenError, match="look for NaN"):
        fitted.estimate(net, x * torch.nan)
    with pytest.raises(UnseenError, match="level"):
        fitted.estimate(net, x, level=1.0)
    other = AccuracyEstimator("another", 3, 0.0, 20, fitted.points)
    text = r"fitted with the score another, the method's is \w+: fit it again"
    with pytest.raises(UnseenError, match=text):
        other.estimate(net, x)


def test_own_shifts_are_used(net):
    held_out = [bars(60, 2)]
    factors = (("a", 0.9), ("b", 0.5), ("c", 0.1))
    shifts = {name: [lambda x, g, k=k: (x[0] * k,)] for name, k in factors}
    estimator = AccuracyEstimator.fit(net, held_out, shifts=shifts)
    assert {p.kinds for p in estimator.points[1:4]} == {("a",), ("b",), ("c",)}
    expected = accuracy(net, 0.5 * held_out[0][0], held_out[0][1])
    assert estimator.points[2].accuracy == pytest.approx(expected, abs=1e-6)


def test_model_trained_elsewhere_needs_no_source_statistics():
    torch.manual_seed(0)
    net = unseen.ERM(BarNet())
    estimator = AccuracyEstimator.fit(net, [bars(50, 2)])
    assert estimator.detector == "max_softmax"
    first = estimator.points[0]
    assert first.score == pytest.approx(first.uncertainty, abs=0.01)
    assert 0 <= estimator.estimate(net, bars(20, 3)[0]).accuracy <= 1


def test_label_maps_count_pixels_and_skip_ignored_ones():
    torch.manual_seed(0)
    net = unseen.ERM(nn.Conv2d(3, 4, 3, padding=1), ignore_label=9)
    x, y = torch.rand(6, 3, 16, 16), torch.randint(4, (6, 16, 16))
    y[:, :8] = 9
    estimator = AccuracyEstimator.fit(net, [(x, y)])
    expected = (net.predict(x).argmax(1) == y)[:, 8:].float().mean()
    assert estimator.points[0].accuracy == pytest.approx(float(expected), abs=1e-6)
    assert not {kind for p in estimator.points for kind in p.kinds} & set(MOVING)
