"""Uncertainty scores: each against hand numbers, the contract against all of them, the figures against scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score, roc_curve
from tiny import TinyNet, tiny_batch
from torch import nn

import unseen
from unseen import ERM, METHODS, UncertaintyGuided, UnseenError
from unseen.detection.logits import Energy, Entropy, MaxSoftmax, TotalVariance
from unseen.detection.mahalanobis import class_gaussians, nearest_squared
from unseen.detection.registry import OF_METHOD, SCORES, scores_of
from unseen.functional.pooling import pool
from unseen.methods import Adversary, Noise
from unseen.nn.hooks import evaluating
from unseen.report.statistics import auroc, fpr_at_95, rank_correlation


@pytest.fixture(scope="module")
def nets():
    """One trained model for each method that scores are read off."""
    made = {}
    for name, quick in (
        (
            "uncertainty_guided",
            {"warmup": 1, "adversary": Adversary(rounds=1, steps=1), "draws": 1},
        ),
        ("bnn", {"passes": 3}),
        ("mc_dropout", {"passes": 3}),
    ):
        torch.manual_seed(0)
        made[name] = METHODS[name](TinyNet(), sites=("conv1",), embedding="fc1", lr=1e-2, **quick)
        unseen.fit(made[name], [tiny_batch(16, seed=s) for s in range(3)], steps=6, progress=False)
    return made


def test_scores_of_logits_by_hand():
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3]])) + 2.0
    torch.testing.assert_close(MaxSoftmax.from_logits(logits), torch.tensor([[0.3], [2 / 3]]))
    entropy = -(0.7 * math.log(0.7) + 0.2 * math.log(0.2) + 0.1 * math.log(0.1))
    torch.testing.assert_close(
        Entropy.from_logits(logits), torch.tensor([[entropy], [math.log(3)]])
    )
    torch.testing.assert_close(Energy.from_logits(logits), torch.tensor([[-2.0], [-2.0]]))
    assert (
        Entropy.from_logits(torch.tensor([[1000.0, 0.0]])).isfinite().all()
    )  # a sure model is not NaN


@pytest.mark.parametrize("score", [MaxSoftmax, Entropy, Energy, TotalVariance])
def test_pixels_are_averaged_per_sample(score):
    maps = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    by_pixel = torch.stack(
        [score.from_logits(maps[:, :, i, j]) for i in range(4) for j in range(5)]
    ).mean(0)
    torch.testing.assert_close(score.from_logits(maps), by_pixel)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_keeps_the_contract(name, nets):
    net = nets[next(method for method, names in OF_METHOD.items() if name in names)]
    score = SCORES[name](net)
    assert score.name == name and score.summary and score.paper
    score.fit([tiny_batch(16, seed=s) for s in range(3)])
    x = tiny_batch(10, seed=9).x
    state, look = {k: v.clone() for k, v in net.state_dict().items()}, score.look(x)
    torch.testing.assert_close(look.logits, net.predict(x))
    assert (
        score.of(x).shape == (10,)
        and look.features.shape[0] == 10
        and not look.features.requires_grad
    )
    torch.testing.assert_close(score.of(x), score.score(look.features))
    assert score.domain(look.features) == pytest.approx(float(score.score(look.features.mean(0))))
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in state.items())
    assert not any(m._forward_hooks for m in net.modules())


def test_our_domain_score_is_that_of_the_mean_sigma_not_the_mean_of_scores(nets):
    net = nets["uncertainty_guided"]
    score, x = SCORES["uncertainty_guided"](net), tiny_batch(12, seed=5).x
    features = score.look(x).features
    torch.testing.assert_close(features, net.score_features(x))
    assert score.domain(features) == pytest.approx(net.domain_score(x))
    assert score.domain(features) < float(
        score.of(x).mean()
    )  # single samples scatter around their domain
    for name in ("msp", "bnn"):
        other = SCORES[name](nets["bnn" if name == "bnn" else "uncertainty_guided"])
        assert other.domain(other.look(x).features) == pytest.approx(
            float(other.of(x).mean()), rel=1e-5
        )


def test_the_total_variance_is_that_within_passes_and_that_between_them(nets):
    net, x = nets["bnn"], tiny_batch(6, seed=5).x
    with torch.no_grad(), evaluating(net.model):
        p = torch.stack([logits.softmax(1) for logits in net.sampled_logits(x)])
    within, between = (p * (1 - p)).sum(2).mean(0), p.var(0, correction=0).sum(1)
    torch.testing.assert_close(SCORES["bnn_total"](net).of(x), within + between)


def test_a_model_is_compared_by_the_scores_of_its_method_and_others_are_refused(nets):
    assert [s.name for s in scores_of(nets["uncertainty_guided"])] == [
        "uncertainty_guided",
        "msp",
        "entropy",
        "energy",
        "mahalanobis",
    ]
    assert [s.name for s in scores_of(nets["bnn"])] == ["bnn", "bnn_total"]
    with pytest.raises(UnseenError, match="this one is of erm"):
        scores_of(ERM(TinyNet()))
    with pytest.raises(UnseenError, match="trained by the method bnn"):
        SCORES["bnn"](nets["mc_dropout"])
    with pytest.raises(UnseenError, match="no sigma"):
        SCORES["uncertainty_guided"](
            UncertaintyGuided(
                TinyNet(), sites="conv1", embedding="fc1", noise=Noise(kind="deterministic")
            )
        )


# ----------------------------------------------------------------------------------------------------- mahalanobis


def test_the_distance_is_that_of_the_formula():
    g = torch.Generator().manual_seed(0)
    skew = torch.tensor([[2.0, 0.0, 0.0], [1.5, 0.5, 0.0], [0.0, 0.3, 1.0]], dtype=torch.float64)
    y = torch.arange(4000) % 2
    features = torch.randn(4000, 3, generator=g, dtype=torch.float64) @ skew + 5.0 * y[:, None]
    means, whitening = class_gaussians(features, y)
    torch.testing.assert_close(means, torch.stack([features[y == c].mean(0) for c in (0, 1)]))
    precision = whitening @ whitening.T
    torch.testing.assert_close(precision, torch.linalg.inv(skew.T @ skew), rtol=0.15, atol=0.05)
    points = torch.tensor([[0.0, 0.0, 0.0], [9.0, 1.0, -4.0]], dtype=torch.float64)
    slow = torch.stack(
        [torch.stack([(p - m) @ precision @ (p - m) for m in means]).min() for p in points]
    )
    torch.testing.assert_close(nearest_squared(points @ whitening, means @ whitening), slow)


def test_fewer_samples_than_features_and_dead_features_still_have_a_distance():
    features = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features[:, 3] = 0.0
    _, whitening = class_gaussians(
        features, torch.tensor([0, 0, 0, 7, 7, 7])
    )  # numbers of classes may have gaps
    assert whitening.isfinite().all()
    with pytest.raises(UnseenError, match="the same for all"):
        class_gaussians(torch.ones(6, 4, dtype=torch.float64), torch.zeros(6, dtype=torch.int64))


def test_it_reads_the_layer_of_our_score_pooled_over_space(nets):
    net, source = nets["uncertainty_guided"], [tiny_batch(16, seed=s) for s in range(3)]
    score = SCORES["mahalanobis"](net)
    with pytest.raises(UnseenError, match="call fit"):
        score.of(source[0].x)
    score.fit(source)
    with torch.no_grad():
        features = torch.cat([pool(net.model.conv1(*b.x), 1) for b in source]).double()
    means, whitening = class_gaussians(features, torch.cat([b.y for b in source]))
    expected = nearest_squared(features @ whitening, means @ whitening).float()
    torch.testing.assert_close(torch.cat([score.of(b.x) for b in source]), expected)
    far = tuple(t + 10.0 for t in source[0].x)
    assert score.of(far).min() > 10 * score.of(source[0].x).max()


def test_maps_of_labels_make_the_source_one_class():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 1))
    score = SCORES["mahalanobis"](ERM(model, sites=("0",)))
    score.fit([unseen.api.Batch((torch.randn(30, 2, 6, 6),), torch.randint(3, (30, 6, 6)))])
    assert score.centres.shape == (1, 4) and score.of(torch.randn(5, 2, 6, 6)).shape == (5,)
    with pytest.raises(UnseenError, match="without any"):
        SCORES["mahalanobis"](ERM(model))


# ------------------------------------------------------------------------------------------------ what is made of them


def test_rank_correlation_by_hand_and_with_ties():
    assert rank_correlation([1, 2, 3], [10, 30, 20]) == pytest.approx(0.5)
    assert rank_correlation([1, 2, 3, 4], [8, 6, 4, 2]) == pytest.approx(-1)
    a, b = [1, 1, 2, 5, 5, 7], [2, 3, 3, 3, 9, 8]
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None and rank_correlation([1], [1]) is None


def test_auroc_and_fpr95_by_hand():
    assert auroc([0, 1], [2, 3]) == 1 and auroc([2, 3], [0, 1]) == 0
    assert auroc([1, 1], [1, 1]) == 0.5 and auroc([0, 1], [1, 2]) == pytest.approx(
        (1 + 1 + 0.5 + 1) / 4
    )
    source = np.arange(1, 101)  # 95 of 100 pass at 95
    assert fpr_at_95(source, [95, 95.5, 96, 1]) == 0.5
    assert fpr_at_95(source, [200.0]) == 0 and fpr_at_95(source, [0.0]) == 1


@pytest.mark.parametrize("decimals", [1, 6])
def test_auroc_and_fpr95_agree_with_scikit_learn_ties_included(decimals):
    g = np.random.default_rng(0)
    source, target = g.normal(0, 1, 300).round(decimals), g.normal(1, 1.5, 200).round(decimals)
    is_source = np.r_[np.ones(300), np.zeros(200)]
    certainty = -np.r_[source, target]
    assert auroc(source, target) == pytest.approx(roc_auc_score(is_source, certainty))
    false, true, _ = roc_curve(is_source, certainty, drop_intermediate=False)
    assert fpr_at_95(source, target) == pytest.approx(false[np.argmax(true >= 0.95)])
