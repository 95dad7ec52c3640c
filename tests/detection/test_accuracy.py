"""The accuracy estimator: its estimates on a toy task, its intervals, its file."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from toy_domains import BarNet, bars, make

import unseen
from unseen import AccuracyEstimator, UnseenError, estimate_accuracy
from unseen.detection.accuracy_points import collect_points
from unseen.detection.one_pass import OnePass
from unseen.detection.synthetic_shifts import MOVING, shifts_for
from unseen.nn.batch import Batch
from unseen.nn.tensor_files import write_tensors
from unseen.training.train import train


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def net(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, out, progress=False).load(make())


@pytest.fixture(scope="module")
def fitted(net):
    return AccuracyEstimator.fit(net, DataLoader(TensorDataset(*bars(300, 2)), 64), samples=100)


def accuracy(net, x, y):
    return float((net.predict(x).argmax(1) == y).float().mean())


def test_estimate_falls_with_the_shift_and_its_interval_holds_the_accuracy(net, fitted):
    """On kinds of shift that the estimator was not fitted with: fog, and other strengths."""
    clean = estimate_accuracy(net, bars(300, 50)[0], fitted)
    covered, errors = [], []
    for shift in ({"fog": 0.3}, {"fog": 0.6}, {"grain": 0.2}, {"grain": 0.6}, {"light": 0.4}, {}):
        x, y = bars(300, 51, **shift)
        estimate = fitted.estimate(x)
        assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1 and estimate.n == 300
        covered.append(estimate.low - 0.03 <= accuracy(net, x, y) <= estimate.high + 0.03)
        errors.append(abs(estimate.accuracy - accuracy(net, x, y)))
    assert sum(covered) >= 5  # of 6, at 90 %
    assert np.mean(errors) < 0.2
    assert abs(clean.accuracy - fitted.source_accuracy) < 0.05
    assert fitted.estimate(bars(300, 52, grain=0.6)[0]).accuracy < clean.accuracy - 0.05


def test_source_is_estimated_at_its_accuracy(fitted):
    """Every part of the combination is anchored there."""
    source = bars(300, 2)[0]
    assert fitted.estimate(source).accuracy == pytest.approx(fitted.source_accuracy, abs=0.02)


def test_mixtures_are_estimated_between_their_parts(fitted):
    clean, shifted = bars(200, 61)[0], bars(200, 62, grain=0.6)[0]
    ends = [fitted.estimate(x).accuracy for x in (clean, shifted)]
    half = fitted.estimate(torch.cat([clean[:100], shifted[:100]])).accuracy
    assert ends[1] < half < ends[0]


def test_domain_beyond_every_shift_extrapolates_down_to_chance(fitted):
    near = fitted.estimate(bars(100, 63)[0])
    far = fitted.combined.predict({name: 1e4 for name in fitted.combined.names})
    assert not near.extrapolates and far[1] and far[2] > 1


def test_small_sample_has_a_wider_interval(fitted):
    x, _ = bars(300, 70)
    few, many = (fitted.estimate(x[:n]) for n in (8, 300))
    assert few.high - few.low >= many.high - many.low


def test_correctness_separates_errors_at_least_as_well_as_chance(net, fitted):
    x, y = bars(300, 71, grain=0.3)
    correct = net.predict(x).argmax(1) == y
    probability = fitted.correctness(x)
    assert probability.shape == (300,) and probability.min() >= 0 and probability.max() <= 1
    assert probability[correct].mean() > probability[~correct].mean()


def test_mean_correctness_is_the_estimated_accuracy(fitted):
    for x in (bars(200, 72)[0], bars(200, 73, grain=0.3)[0]):
        mean = float(fitted.correctness(x).mean())
        assert mean == pytest.approx(fitted.estimate(x).accuracy, abs=1e-3)


def test_changed_weights_are_noticed(net, fitted, tmp_path):
    x, _ = bars(40, 74)
    fitted.estimate(x)
    path = tmp_path / "accuracy.safetensors"
    weight = next(net.model.parameters())
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.add_(0.1)
        with pytest.raises(UnseenError, match="weights have changed"):
            fitted.estimate(x)
        fitted.save(path)  # with the digest of the weights it was fitted to
        with pytest.raises(UnseenError, match="other weights"):
            AccuracyEstimator.load(path, net)
        assert not fitted.matches(net)
    finally:
        with torch.no_grad():
            weight.copy_(before)
    assert fitted.matches(net)
    fitted.estimate(x)


@pytest.mark.parametrize("n", [1, 2, 8, 16])
def test_small_source_batches_keep_the_stated_rate(fitted, n):
    x, _ = bars(800, 75)
    seen = fitted.one_pass.observe((x,))
    generator = torch.Generator().manual_seed(1)
    fired = 0
    for _ in range(100):
        index = torch.randint(800, (n,), generator=generator)
        estimate = fitted.estimate_from(fitted.one_pass.regrouped(seen, index))
        fired += fitted.source_accuracy - estimate.accuracy > fitted.null.margin(n, 0.05)
    assert fired <= 12  # stated 5 of 100, of one calibration


def test_estimator_is_saved_and_loaded(net, fitted, tmp_path):
    path = tmp_path / "accuracy.safetensors"
    fitted.save(path)
    again = AccuracyEstimator.load(path, net)
    x, _ = bars(100, 80)
    assert again.estimate(x) == fitted.estimate(x)
    assert path.stat().st_size < 1_000_000


def test_estimator_of_other_weights_is_refused(net, fitted, tmp_path):
    path = tmp_path / "accuracy.safetensors"
    fitted.save(path)
    other = copy.deepcopy(net)
    with torch.no_grad():
        next(other.model.parameters()).add_(1)
    with pytest.raises(UnseenError, match="other weights: fit it again"):
        AccuracyEstimator.load(path, other)
    with pytest.raises(UnseenError, match="another method"):
        estimate_accuracy(other, bars(5, 1)[0], fitted)


def test_damaged_file_is_refused(net, fitted, tmp_path):
    path = tmp_path / "accuracy.safetensors"
    with pytest.raises(UnseenError, match="does not exist"):
        AccuracyEstimator.load(path, net)
    path.write_bytes(b"{}")
    with pytest.raises(UnseenError, match="not a complete safetensors"):
        AccuracyEstimator.load(path, net)
    write_tensors(path, {"a": torch.zeros(1)}, {"unseen": '{"format": 4}'})
    with pytest.raises(UnseenError, match="fit it again"):
        AccuracyEstimator.load(path, net)
    write_tensors(path, {"a": torch.zeros(1)}, {"unseen": "[]"})
    with pytest.raises(UnseenError, match="fit it again"):
        AccuracyEstimator.load(path, net)


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


def test_estimate_refuses_bad_arguments(fitted):
    x, _ = bars(20, 1)
    with pytest.raises(UnseenError, match="x is empty"):
        fitted.estimate(x[:0])
    with pytest.raises(UnseenError, match=r"NaN|not finite"):
        fitted.estimate(x * torch.nan)
    with pytest.raises(UnseenError, match="level"):
        fitted.estimate(x, level=1.0)


@pytest.mark.parametrize(
    "shifts",
    [[1, 2, 3], {"a": lambda x, g: x}, {"a": [5], "b": [5], "c": [5]}, {"a": [], "b": [], "c": []}],
)
def test_shifts_that_are_no_lists_of_functions_are_refused(net, shifts):
    with pytest.raises(UnseenError, match="shifts must be a dict of lists of functions"):
        AccuracyEstimator.fit(net, [bars(30, 2)], shifts=shifts)


def test_shift_that_fails_is_named(net):
    shifts = {kind: [lambda x, g: (x[0] / (1 // 0),)] for kind in "abc"}
    with pytest.raises(UnseenError, match=r"the shift .* fails.*ZeroDivisionError"):
        AccuracyEstimator.fit(net, [bars(30, 2)], shifts=shifts)


def test_own_shifts_are_used(net):
    source = Batch.of(bars(60, 2))
    factors = (("a", 0.9), ("b", 0.5), ("c", 0.1))
    shifts = {name: [lambda x, g, k=k: (x[0] * k,)] for name, k in factors}
    one_pass = OnePass(net, 3)
    seen = one_pass.calibrate(source, -100)
    points = collect_points(one_pass, source, seen, shifts, -100)
    assert {p.kinds for p in points[1:4]} == {("a",), ("b",), ("c",)}
    expected = accuracy(net, 0.5 * source.x[0], source.y)
    assert points[2].accuracy == pytest.approx(expected, abs=1e-6)
    estimator = AccuracyEstimator.fit(net, [source], shifts=shifts)
    assert 0 <= estimator.estimate(bars(20, 3)[0]).accuracy <= 1


def test_model_trained_elsewhere_needs_no_source_statistics():
    torch.manual_seed(0)
    net = unseen.ERM(BarNet())
    estimator = AccuracyEstimator.fit(net, [bars(50, 2)], samples=40)
    assert "sigma" not in estimator.combined.names
    assert 0 <= estimator.estimate(bars(20, 3)[0]).accuracy <= 1


def test_label_maps_are_estimated_and_moving_shifts_left_out():
    torch.manual_seed(0)
    net = unseen.ERM(nn.Conv2d(3, 4, 3, padding=1), ignore_label=9)
    x, y = torch.rand(6, 3, 16, 16), torch.randint(4, (6, 16, 16))
    y[:, :8] = 9
    estimator = AccuracyEstimator.fit(net, [(x, y)])
    assert 0 <= estimator.estimate(x).accuracy <= 1
    assert not set(shifts_for((x,), label_maps=True)) & set(MOVING)
