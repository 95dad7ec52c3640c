"""The contract of a detector, checked on every one of them."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn

import unseen
from unseen import ERM, METHODS, UncertaintyGuided, UnseenError
from unseen.api import Batch
from unseen.detection import DETECTORS, Entropy, Mahalanobis, PredictiveVariance, SigmaDetector
from unseen.detection.detector import Detector, Look
from unseen.detection.mahalanobis import class_gaussians
from unseen.detection.registry import make_detector
from unseen.functional.pooling import pool
from unseen.functional.scores import nearest_squared_distance
from unseen.methods import Adversary, Noise
from unseen.nn.hooks import evaluating

QUICK = {
    "uncertainty_guided": {"warmup": 1, "adversary": Adversary(rounds=1, steps=1), "draws": 1},
    "bnn": {"passes": 3},
    "mc_dropout": {"passes": 3},
}
SOURCE = [tiny_batch(16, seed=s) for s in range(3)]
HELD_OUT = [tiny_batch(16, seed=s) for s in range(3, 6)]


def train(name):
    torch.manual_seed(0)
    settings = QUICK.get(name, {})
    net = METHODS[name](TinyNet(), sites=("conv1",), embedding="fc1", lr=1e-2, **settings)
    return unseen.fit(net, SOURCE, steps=6, held_out=HELD_OUT, progress=False).net


@pytest.fixture(scope="module")
def nets():
    return {name: train(name) for name in ("uncertainty_guided", "bnn", "mc_dropout", "erm")}


def method_for(name):
    return "bnn" if name in ("predictive_variance", "total_variance") else "uncertainty_guided"


@pytest.fixture(params=DETECTORS)
def detector(request, nets):
    return DETECTORS[request.param](nets[method_for(request.param)]).calibrate(SOURCE, HELD_OUT)


def test_registry_names_match_the_classes():
    for name, kind in DETECTORS.items():
        assert kind.name == name and kind.summary and kind.paper
        module = inspect.getmodule(kind)
        assert module.__name__ == f"unseen.detection.{name}", "one detector, one file"
    with pytest.raises(UnseenError, match='no detector "nose"; there are: sigma, '):
        make_detector("nose", None)


def test_score_and_prediction_come_from_one_look(detector):
    x = tiny_batch(10, seed=9).x
    look = detector.look(x)
    torch.testing.assert_close(look.logits, detector.net.predict(x))
    assert look.features.shape[0] == 10 and not look.features.requires_grad
    assert detector.score(x).shape == (10,)
    torch.testing.assert_close(detector.score(x), detector.reduce(look.features))
    logits, scores = detector.predict_and_score(x)
    assert torch.equal(logits, look.logits) and torch.equal(scores, detector.score(x))


def test_domain_score_is_the_score_of_the_mean_features(detector):
    x = tiny_batch(10, seed=9).x
    expected = float(detector.reduce(detector.look(x).features.mean(0)))
    assert detector.domain_score(x) == pytest.approx(expected)
    assert detector.domain_score_of(detector.look(x).features) == pytest.approx(expected)
    with pytest.raises(UnseenError, match="x is empty"):
        detector.domain_score(x[0][:0])
    with pytest.raises(UnseenError, match="look for NaN"):
        detector.domain_score(x[0] * torch.nan)


def test_alarm_compares_the_domain_score_with_the_threshold(detector):
    x = tiny_batch(10, seed=9).x
    threshold = detector.threshold(10, 0.2)
    assert detector.alarm(x, 0.2) == (detector.domain_score(x) > threshold)
    assert detector.threshold(10, 0.05) >= threshold


def test_detector_leaves_the_model_as_it_was(detector):
    net, x = detector.net, tiny_batch(10, seed=9).x
    state = copy.deepcopy(net.state_dict())
    modes, random = [m.training for m in net.modules()], torch.random.get_rng_state()
    detector.calibrate(SOURCE, HELD_OUT)
    detector.score(x)
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in state.items())
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not any(m._forward_hooks for m in net.modules())


def test_state_dict_restores_scores_and_thresholds(detector):
    x, again = tiny_batch(10, seed=9).x, type(detector)(detector.net)
    again.load_state_dict(detector.state_dict())
    assert again.domain_score(x) == detector.domain_score(x)
    assert again.threshold(7) == detector.threshold(7)
    incomplete = {k: t for k, t in detector.state_dict().items() if k != "held_out"}
    with pytest.raises(UnseenError, match="must hold mean and held_out"):
        again.load_state_dict(incomplete)
    spoilt = {**detector.state_dict(), "mean": detector.state_dict()["mean"] * torch.nan}
    with pytest.raises(UnseenError, match="not finite"):
        again.load_state_dict(spoilt)
    with pytest.raises(UnseenError, match=r"holds .*nonsense"):
        again.load_state_dict({**detector.state_dict(), "nonsense": torch.ones(1)})


def test_uncalibrated_detector_has_no_threshold(detector):
    fresh = type(detector)(detector.net)
    for ask in (lambda: fresh.threshold(3), fresh.state_dict, fresh.calibrated):
        with pytest.raises(UnseenError, match="no source statistics yet"):
            ask()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_detector_and_its_delegates(name):
    settings, x = QUICK.get(name, {}), tiny_batch(10, seed=9).x
    net = METHODS[name](TinyNet(), sites=("conv1",), embedding="fc1", **settings)
    unseen.calibrate(net, SOURCE, HELD_OUT)
    logits, scores = net.predict_with_uncertainty(x)
    torch.testing.assert_close(logits, net.predict(x))
    torch.testing.assert_close(scores, net.uncertainty(x))
    assert scores.shape == (10,) and net.detector.statistics is not None
    assert net.domain_score(x) == net.detector.domain_score(x)
    assert net.threshold(10) == net.detector.threshold(10)
    assert net.alarm(x) == (net.domain_score(x) > net.threshold(10))
    own = {"uncertainty_guided": "sigma", "bnn": "predictive_variance"}
    own["mc_dropout"] = "predictive_variance"
    assert net.detector.name == own.get(name, "max_softmax")


def test_uncertainty_needs_no_calibration_where_the_score_does_not(nets):
    net = ERM(TinyNet())
    assert net.uncertainty(tiny_batch(4).x).shape == (4,)
    with pytest.raises(UnseenError, match="no source statistics yet"):
        net.alarm(tiny_batch(4).x)


def test_a_new_detector_needs_only_look(nets):
    class Brightness(Detector):
        name = "brightness"
        summary = "mean of the input"

        def look(self, x):
            return Look(self.net.predict(x), x[0].flatten(1).mean(1, keepdim=True))

    net = nets["erm"]
    detector = Brightness(net).calibrate(SOURCE, HELD_OUT)
    assert detector.alarm((tiny_batch(20, seed=9).x[0] + 10,))


def test_an_assigned_detector_is_saved_and_loaded(nets, tmp_path):
    net, x = copy.deepcopy(nets["erm"]), tiny_batch(10, seed=9).x
    net.detector = Mahalanobis(net, "fc1").calibrate(SOURCE, HELD_OUT)
    net.save(tmp_path / "mahalanobis")
    again = unseen.load(tmp_path / "mahalanobis", TinyNet())
    assert again.detector.layer == "fc1" and again.domain_score(x) == net.domain_score(x)
    net.detector = Entropy(net).calibrate(SOURCE, HELD_OUT)
    net.save(tmp_path / "entropy")
    again = unseen.load(tmp_path / "entropy", TinyNet())
    assert again.detector.name == "entropy" and again.domain_score(x) == net.domain_score(x)


def test_a_copied_method_has_a_copied_detector(nets):
    net = copy.deepcopy(nets["uncertainty_guided"])
    assert net.detector.net is net and net.detector.head is net.heads["conv1"]
    assert net.detector is not nets["uncertainty_guided"].detector


def test_sigma_scores_the_mean_not_the_samples(nets):
    x = tiny_batch(12, seed=5).x
    detector = nets["uncertainty_guided"].detector
    assert detector.domain_score(x) < float(detector.score(x).mean())
    variance = nets["bnn"].detector
    assert variance.domain_score(x) == pytest.approx(float(variance.score(x).mean()), rel=1e-5)


def test_total_variance_is_the_variance_within_and_between_passes(nets):
    net, x = nets["bnn"], tiny_batch(6, seed=5).x
    with torch.no_grad(), evaluating(net.model):
        p = torch.stack([logits.softmax(1) for logits in net.sampled_logits(x)])
    within, between = (p * (1 - p)).sum(2).mean(0), p.var(0, correction=0).sum(1)
    torch.testing.assert_close(DETECTORS["total_variance"](net).score(x), within + between)


def test_detectors_refuse_methods_they_cannot_read(nets):
    with pytest.raises(UnseenError, match=r"random passes \(bnn, mc_dropout\), not erm"):
        PredictiveVariance(nets["erm"])
    with pytest.raises(UnseenError, match="learned noise, not erm"):
        SigmaDetector(nets["erm"])
    never = UncertaintyGuided(
        TinyNet(), sites="conv1", embedding="fc1", noise=Noise(kind="random_gaussian")
    )
    assert never.detector.name == "max_softmax"


# ---- Mahalanobis


def test_mahalanobis_distance_matches_the_formula():
    g = torch.Generator().manual_seed(0)
    skew = torch.tensor([[2.0, 0.0, 0.0], [1.5, 0.5, 0.0], [0.0, 0.3, 1.0]], dtype=torch.float64)
    y = torch.arange(4000) % 2
    features = torch.randn(4000, 3, generator=g, dtype=torch.float64) @ skew + 5.0 * y[:, None]
    means, whitening = class_gaussians(features, y)
    torch.testing.assert_close(means, torch.stack([features[y == c].mean(0) for c in (0, 1)]))
    precision = whitening @ whitening.T
    torch.testing.assert_close(precision, torch.linalg.inv(skew.T @ skew), rtol=0.15, atol=0.05)
    points = torch.tensor([[0.0, 0.0, 0.0], [9.0, 1.0, -4.0]], dtype=torch.float64)
    slow = [min(float((p - m) @ precision @ (p - m)) for m in means) for p in points]
    fast = nearest_squared_distance(points @ whitening, means @ whitening)
    assert fast.tolist() == pytest.approx(slow)


def test_class_gaussians_allow_few_samples_and_constant_features():
    features = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features[:, 3] = 0.0
    _, whitening = class_gaussians(features, torch.tensor([0, 0, 0, 7, 7, 7]))
    assert whitening.isfinite().all()
    with pytest.raises(UnseenError, match="the same for all"):
        class_gaussians(torch.ones(6, 4, dtype=torch.float64), torch.zeros(6, dtype=torch.int64))


def test_mahalanobis_reads_the_pooled_first_site(nets):
    net = nets["uncertainty_guided"]
    detector = Mahalanobis(net)
    with pytest.raises(UnseenError, match="call fit"):
        detector.score(SOURCE[0].x)
    detector.fit(SOURCE)
    with torch.no_grad():
        features = torch.cat([pool(net.model.conv1(*b.x), 1) for b in SOURCE]).double()
    means, whitening = class_gaussians(features, torch.cat([b.y for b in SOURCE]))
    expected = nearest_squared_distance(features @ whitening, means @ whitening).float()
    torch.testing.assert_close(torch.cat([detector.score(b.x) for b in SOURCE]), expected)
    far = tuple(t + 10.0 for t in SOURCE[0].x)
    assert detector.score(far).min() > 10 * detector.score(SOURCE[0].x).max()


def test_mahalanobis_treats_a_source_with_label_maps_as_one_class():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 1))
    detector = Mahalanobis(ERM(model, sites=("0",)))
    detector.fit([Batch((torch.randn(30, 2, 6, 6),), torch.randint(3, (30, 6, 6)))])
    assert detector.centres.shape == (1, 4)
    assert detector.score(torch.randn(5, 2, 6, 6)).shape == (5,)
    with pytest.raises(UnseenError, match="without any"):
        Mahalanobis(ERM(model))


# ---- deprecated names


def test_deprecated_names_of_a_method_warn_and_delegate(nets):
    net, x = nets["uncertainty_guided"], tiny_batch(5).x
    look = net.detector.look(x)
    calls = {
        "score_features": lambda: net.score_features(x),
        "predict_with_features": lambda: net.predict_with_features(x)[1],
    }
    for name, call in calls.items():
        with pytest.warns(DeprecationWarning, match=name):
            assert torch.equal(call(), look.features)
    with pytest.warns(DeprecationWarning, match=r"Method\.score is"):
        assert torch.equal(net.score(look.features), net.uncertainty(x))
    with pytest.warns(DeprecationWarning, match="reference"):
        assert net.reference is net.detector.statistics
    with pytest.warns(DeprecationWarning, match="score_name"):
        assert net.score_name == "sigma"
    with pytest.warns(DeprecationWarning, match="score_at"):
        assert net.score_at == "site"
    with pytest.warns(DeprecationWarning, match="reader"):
        assert net.reader is None
    with pytest.warns(DeprecationWarning, match="transport"):
        assert net.transport(x).shape == (5, 2 * net.model.fc1.out_features)


def test_a_method_that_overrides_the_old_hooks_is_still_scored_by_them():
    class Old(ERM):
        def score_features(self, x):
            return x[0].flatten(1)

        def score(self, features):
            return features.sum(-1)

    net, x = Old(TinyNet()), tiny_batch(5).x
    with pytest.warns(DeprecationWarning, match="make_detector"):
        torch.testing.assert_close(net.uncertainty(x), x[0].flatten(1).sum(1))
