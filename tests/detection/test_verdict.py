"""Verdicts on a toy task."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from toy_domains import BarNet, bars, make

import unseen
from unseen import UnseenError
from unseen.detection.verdict import outcome
from unseen.training.train import train


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "ours"
    net = train(make(), "uncertainty_guided", out, progress=False).load(make())
    loader = DataLoader(TensorDataset(*bars(300, 2)), 64)
    unseen.calibrate(net, loader, loader)
    return net


def accuracy(net, x, y):
    return float((net.predict(x).argmax(1) == y).float().mean())


def test_source_is_ok_and_a_costly_shift_is_failing(net):
    verdict = net.verdict(bars(128, 40)[0])
    assert verdict.verdict == "ok" and not verdict.alarm
    assert verdict.p_value > 0.01 and verdict.times_threshold < 1
    assert "Looks like the source" in verdict.sentence
    x, y = bars(128, 41, grain=0.6)
    assert accuracy(net, x, y) < verdict.source_accuracy - 0.15
    failing = net.verdict(x)
    assert failing.verdict in ("failing", "unknown") and failing.alarm
    assert failing.p_value <= 0.01 and failing.score > failing.threshold
    low, high = failing.interval
    assert low <= failing.predicted_accuracy <= high
    assert failing.predicted_accuracy < verdict.predicted_accuracy


def test_tolerance_decides_between_shifted_and_failing(net):
    x, _ = bars(128, 42, grain=0.6)
    assert net.verdict(x, tolerance=0.99).verdict in ("shifted", "unknown")


def test_source_is_called_failing_at_most_at_the_stated_rate(net):
    x, _ = bars(3000, 43)
    rate, batches = 0.05, x.split(50)
    failing = sum(net.verdict(b, rate=rate).verdict == "failing" for b in batches)
    slack = 3 * (rate * (1 - rate) / len(batches)) ** 0.5
    assert failing / len(batches) <= rate + slack


class Far:
    """An estimate beyond every shift."""

    extrapolates, accuracy, n = True, 0.5, 64


def test_domain_beyond_every_shift_is_unknown_unless_it_looks_like_the_source(net):
    estimator = net.accuracy_estimator
    assert outcome(True, Far(), estimator, 0.05, 0.01) == "unknown"
    Far.accuracy = estimator.source_accuracy
    assert outcome(False, Far(), estimator, 0.05, 0.01) == "ok"


def test_fields_are_plain_values(net):
    found = net.verdict(bars(20, 44)[0]).as_dict()
    keys = {"verdict", "p_value", "predicted_accuracy", "interval", "alarm", "sentence"}
    assert keys <= set(found) and isinstance(found["interval"], list)


def test_estimator_is_fitted_once_kept_and_saved(net, tmp_path, caplog):
    first = net.accuracy_estimator
    assert net.accuracy_estimator is first
    net.save(tmp_path / "saved")
    again = unseen.load(tmp_path / "saved", make().model())
    assert again.has_accuracy_estimator
    x, _ = bars(64, 45)
    assert again.verdict(x) == net.verdict(x)


def test_training_drops_the_estimator(tmp_path):
    torch.manual_seed(0)
    net = unseen.ERM(BarNet())
    loader = [bars(64, 1)]
    unseen.fit(net, loader, 1, held_out=loader, progress=False)
    net.accuracy_estimator = unseen.AccuracyEstimator.fit(net, loader, samples=20)
    unseen.fit(net, loader, 1, held_out=loader, progress=False)
    assert not net.has_accuracy_estimator
    net.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "accuracy.safetensors").exists()


def test_bad_arguments_are_refused(net):
    x, _ = bars(20, 46)
    with pytest.raises(UnseenError, match="tolerance"):
        net.verdict(x, tolerance=-1)
    with pytest.raises(UnseenError, match="rate"):
        net.verdict(x, rate=0)
    with pytest.raises(UnseenError, match="held_out="):
        unseen.ERM(BarNet()).verdict(x)
