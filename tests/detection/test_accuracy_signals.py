"""The accuracy signals: their scores against slow code, and one pass for all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from toy_domains import BarNet, bars, make

import unseen
from unseen import UnseenError
from unseen.detection.one_pass import LOGITS_ONLY, Moments, Observation, OnePass
from unseen.functional.confidence import fit_temperature
from unseen.nn.batch import Batch
from unseen.training.train import train


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def net(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, out, progress=False).load(make())


@pytest.fixture(scope="module")
def one_pass(net):
    made = OnePass(net, 3)
    made.calibrate(Batch.of(bars(300, 2)), -100)
    return made


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def slow_scores(net, source, x):
    """Return the scores of every signal of logits, by their papers' formulas."""
    xs, ys = source
    zs, z = net.predict(xs), net.predict(x).double().numpy()
    t = fit_temperature(zs, ys)
    ps, p = softmax(zs.double().numpy() / t), softmax(z / t)
    right = zs.argmax(1).eq(ys).numpy()
    entropy = lambda q: (q * np.log(q)).sum(1)  # noqa: E731
    threshold = np.sort(entropy(ps))[(~right).sum()]
    chunk = np.array_split(np.arange(len(p)), int(np.ceil(len(p) / 64)))
    marginal = np.bincount(ys.numpy(), minlength=3) / len(ys)

    def matched(q):
        places = (np.arange(len(q)) + 0.5) / len(q)
        labels = np.searchsorted(np.cumsum(marginal), places)
        rows, columns = linear_sum_assignment(-q[:, labels])
        return q[:, labels][rows, columns]

    order = torch.randperm(len(p), generator=torch.Generator().manual_seed(0)).numpy()
    transported = np.concatenate([matched(p[order][c]) for c in chunk])
    positive = 1 + z + z**2 / 2
    normalized = positive / positive.sum(1, keepdims=True)
    return {
        "doc": 1 - p.max(1).mean(),
        "atc": (entropy(p) < threshold).mean(),
        "nuclear_norm": 1 - np.linalg.norm(p, "nuc") / np.sqrt(len(p) * 3),
        "mano": 1 - (normalized**4).mean() ** 0.25,
        "cot": 1 - transported.mean(),
        "energy": -np.log(np.exp(z).sum(1)).mean(),
    }


def test_scores_match_the_formulas(net, one_pass):
    x, y = bars(200, 5, grain=0.3)
    seen = one_pass.observe((x,), y)
    for name, expected in slow_scores(net, bars(300, 2), x).items():
        found = Moments.of(seen.features[name]).score(one_pass.detectors[name])
        assert found == pytest.approx(expected, abs=1e-4), name


def test_estimates_of_the_papers_agree_with_the_source(net, one_pass):
    x, y = bars(300, 2)
    seen = one_pass.observe((x,), y)
    for name in ("doc", "atc"):
        detector = one_pass.detectors[name]
        score = Moments.of(seen.features[name]).score(detector)
        assert detector.accuracy(score) == pytest.approx(seen.accuracy, abs=0.01), name


def test_one_pass_passes_the_model_once(net, one_pass):
    x, _ = bars(60, 3)
    one_pass.observe((x,), own=net.detector)
    calls = []
    hook = net.model.register_forward_hook(lambda *_: calls.append(1))
    seen = one_pass.observe((x,), own=net.detector)
    hook.remove()
    assert len(calls) == 1
    assert torch.equal(seen.own, net.detector.look(x).features)
    assert torch.equal(seen.logits[:, 0], net.predict(x))


def test_moments_merge_and_blend_as_samples_do():
    a, b = torch.randn(30, 4).double(), 2 + torch.randn(70, 4).double()
    merged, both = Moments.of(a).merge(Moments.of(b)), Moments.of(torch.cat([a, b]))
    assert merged.n == 100
    assert torch.allclose(merged.mean, both.mean) and torch.allclose(merged.variance, both.variance)
    blend = Moments.of(a).blend(Moments.of(b), 0.7)
    assert torch.allclose(blend.mean, both.mean) and torch.allclose(blend.variance, both.variance)


def test_small_samples_do_not_raise_a_score_of_deviations(tmp_path):
    net = train(make(), "uncertainty_guided", tmp_path / "r", progress=False).load(make())
    made = OnePass(net, 3)
    made.calibrate(Batch.of(bars(300, 2)), -100)
    detector = made.detectors["sigma"]
    features = made.observe((bars(2000, 9)[0],)).features["sigma"]
    few = [Moments.of(part) for part in features.split(20)]
    plain = np.mean([float(detector.reduce(m.mean)) for m in few])
    corrected = np.mean([m.score(detector) for m in few])
    whole = Moments.of(features).score(detector)
    assert abs(corrected - whole) < abs(plain - whole)


def test_label_maps_are_read_at_sampled_pixels():
    torch.manual_seed(0)
    net = unseen.ERM(torch.nn.Conv2d(3, 4, 3, padding=1), ignore_label=9)
    x, y = torch.rand(6, 3, 16, 16), torch.randint(4, (6, 16, 16))
    y[:, :8] = 9
    made = OnePass(net, 4)
    seen = made.calibrate(Batch((x,), y), 9)
    assert seen.logits.shape == (6, 64, 4) and int(seen.counted.sum()) == 6 * 32
    assert all(features.shape[0] == 6 for features in seen.features.values())


def test_observations_are_joined_and_taken(one_pass):
    x, y = bars(50, 3)
    whole = one_pass.observe((x,), y)
    parts = [one_pass.observe((x[:20],), y[:20]), one_pass.observe((x[20:],), y[20:])]
    joined = Observation.concatenate(parts)
    assert torch.allclose(joined.logits, whole.logits, atol=1e-5)
    assert joined.accuracy == whole.accuracy and whole.take(torch.arange(5)).n == 5


@pytest.mark.parametrize("kind", LOGITS_ONLY, ids=lambda kind: kind.name)
def test_signals_are_detectors_that_are_saved(kind):
    torch.manual_seed(0)
    net = unseen.ERM(BarNet())
    held_out = [bars(250, 1)]
    detector = kind(net).calibrate(held_out, held_out)
    again = kind(net)
    again.load_state_dict(detector.state_dict())
    x, _ = bars(30, 4)
    assert again.domain_score(x) == detector.domain_score(x)
    assert detector.summary and detector.paper
    if hasattr(detector, "fit_to") and detector.numbers:
        with pytest.raises(UnseenError, match="not fitted"):
            kind(net).score(x)


def test_order_of_the_samples_hardly_matters(one_pass):
    """Sorted data would otherwise be matched in groups of one class."""
    x, y = bars(300, 6)
    for name, detector in one_pass.detectors.items():
        scores = []
        for index in (torch.arange(300), y.argsort()):
            scores.append(one_pass.observe((x[index],)).moments[name].score(detector))
        assert scores[0] == pytest.approx(scores[1], abs=0.05), name
