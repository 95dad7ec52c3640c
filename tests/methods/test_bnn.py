"""Bayes by backprop: KL, gradients of the scales, sampling, variance off the data."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tiny import TinyNet, tiny_batch
from torch import nn
from torch.distributions import Normal, kl_divergence

import unseen
from unseen import METHODS, UnseenError
from unseen.functional.noise import Gaussian
from unseen.methods.bnn import inverse_softplus, kl_to_prior, random_parameters, sample_weights

BNN = METHODS["bnn"]


def net_of(model=None, **settings):
    torch.manual_seed(0)
    return BNN(TinyNet() if model is None else model, **{"lr": 1e-2, **settings})


def test_the_kl_is_the_closed_form_summed_over_all_weights():
    by_hand = math.log(0.5 / 0.1) + (0.1**2 + 0.3**2) / (2 * 0.5**2) - 0.5
    q = {"w": Gaussian(torch.tensor([0.3, 0.3]), torch.tensor([0.1, 0.1]))}
    assert float(kl_to_prior(q, 0.5)) == pytest.approx(2 * by_hand, rel=1e-6)
    g = torch.Generator().manual_seed(0)
    mu, sigma = torch.randn(4, 3, generator=g), torch.rand(4, 3, generator=g) + 0.1
    expected = kl_divergence(Normal(mu, sigma), Normal(0.0, 0.7)).sum()
    torch.testing.assert_close(
        kl_to_prior({"a": Gaussian(mu[:1], sigma[:1]), "b": Gaussian(mu[1:], sigma[1:])}, 0.7),
        expected,
    )
    same = {"w": Gaussian(torch.zeros(5), torch.full((5,), 0.7))}
    assert float(kl_to_prior(same, 0.7)) == pytest.approx(0, abs=1e-6)


def test_the_loss_is_the_drawn_networks_and_the_weighted_kl():
    net, batch = net_of(kl_weight=0.25), tiny_batch()
    torch.manual_seed(3)
    terms = net.losses(batch)
    torch.manual_seed(3)
    theta = {
        n: net.mu(n) + F.softplus(net.rho[n.replace(".", "/")]) * torch.randn(net.mu(n).shape)
        for n in net.names
    }
    logits = torch.func.functional_call(net.model, theta, batch.x)
    torch.testing.assert_close(terms["source_loss"], F.cross_entropy(logits, batch.y))
    torch.testing.assert_close(
        terms["loss"], terms["source_loss"] + 0.25 * kl_to_prior(net.posterior(), net.prior_sigma)
    )


def test_every_conv_and_linear_weight_is_random_and_norms_are_not():
    model = TinyNet(norm=True)
    fans = random_parameters(model)
    layers = ("conv1", "conv2", "fc1", "fc2")
    assert set(fans) == {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    assert fans["conv1.weight"] == fans["conv1.bias"] == 2 * 3 * 3 and fans["fc2.weight"] == 6
    model.fc1.weight.requires_grad_(False)
    assert "fc1.weight" not in random_parameters(model)
    net = net_of(nn.Linear(4, 3), sigma_start=0.2)  # a layer as a whole model
    torch.testing.assert_close(net.posterior()["weight"].sigma, torch.full((3, 4), 0.2 / 2))
    assert F.softplus(torch.tensor(inverse_softplus(0.03))) == pytest.approx(0.03, rel=1e-4)


def test_the_gradient_reaches_the_scales_and_an_update_moves_them():
    net, batch = net_of(kl_weight=0.0), tiny_batch()
    before = {k: v.detach().clone() for k, v in net.rho.items()}
    net.step(batch)
    for name, rho in net.rho.items():
        assert rho.grad.abs().sum() > 0, name  # by the loss alone: the KL weighs nothing here
        assert not torch.equal(rho.detach(), before[name]), name


def test_the_kl_pulls_the_scales_to_the_prior():
    wide, narrow = (
        net_of(kl_weight=1.0, prior_sigma=0.5, sigma_lr=0.05),
        net_of(kl_weight=1.0, prior_sigma=0.01, sigma_lr=0.05),
    )
    for _ in range(40):
        wide.step(tiny_batch())
        narrow.step(tiny_batch())
    start = net_of().posterior()["conv2.weight"].sigma.mean()
    assert wide.posterior()["conv2.weight"].sigma.mean() > 1.5 * start
    assert narrow.posterior()["conv2.weight"].sigma.mean() < start / 1.5


def test_draws_scatter_as_the_posterior_says():
    q = {"w": Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.1]))}
    g = torch.Generator().manual_seed(0)
    draws = torch.stack([sample_weights(q, g)["w"] for _ in range(4000)])
    torch.testing.assert_close(draws.mean(0), q["w"].mu, atol=0.03, rtol=0)
    torch.testing.assert_close(draws.std(0), q["w"].sigma, atol=0.02, rtol=0)


def test_a_prediction_is_the_mean_of_its_passes_and_repeats_itself():
    net, batch = net_of(passes=5, sigma_start=2.0), tiny_batch()
    with torch.no_grad():
        passes = torch.stack(
            [
                torch.func.functional_call(
                    net.model,
                    sample_weights(net.posterior(), torch.Generator().manual_seed(k)),
                    batch.x,
                ).softmax(1)
                for k in range(5)
            ]
        )
    logits, features = net.detector.look(batch.x)
    torch.testing.assert_close(logits.exp(), passes.mean(0))
    torch.testing.assert_close(features, passes.var(0).sum(1, keepdim=True))
    assert torch.equal(net.predict(batch.x), logits) and torch.equal(
        net.uncertainty(batch.x), features[:, 0]
    )
    torch.testing.assert_close(
        net.predict(tuple(t[:1] for t in batch.x)), logits[:1]
    )  # whatever else is in the batch
    assert not torch.allclose(net.model(*batch.x).softmax(1), passes.mean(0), atol=1e-3)


def two_clouds(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    return torch.randn(n, 2, generator=g) * 0.3 + torch.stack([2.0 * y - 1, torch.zeros(n)], 1), y


def test_variance_is_larger_off_the_data_than_on_it():
    torch.manual_seed(0)
    net = BNN(
        nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)),
        lr=1e-2,
        sigma_lr=1e-2,
        kl_weight=1e-2,
        passes=60,
    )
    x, y = two_clouds(64, 0)
    unseen.fit(net, [(x, y)], steps=150, progress=False)
    on, off = (
        two_clouds(200, 1)[0],
        torch.tensor([[0.0, 4.0], [0.0, -4.0], [0.0, 8.0], [0.0, -8.0]]),
    )
    assert (net.predict(on).argmax(1) == two_clouds(200, 1)[1]).float().mean() > 0.95
    assert net.domain_score(off) > 3 * net.domain_score(on)


def test_scales_are_saved_and_loaded(tmp_path):
    net = net_of(passes=3)
    unseen.fit(net, [tiny_batch()], steps=3, progress=False)
    net.save(tmp_path / "saved")
    again = unseen.load(tmp_path / "saved", TinyNet())
    for name in net.names:
        assert torch.equal(again.posterior()[name].sigma, net.posterior()[name].sigma)
    assert again.passes == 3 and torch.equal(
        again.predict(tiny_batch().x), net.predict(tiny_batch().x)
    )


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"passes": 1}, "passes must be an integer of at least 2"),
        ({"prior_sigma": 0.0}, "prior_sigma must be a number above 0"),
        ({"kl_weight": -1.0}, "kl_weight"),
        ({"sigma_start": 0.0}, "sigma_start"),
    ],
)
def test_impossible_settings_are_named(settings, text):
    with pytest.raises(UnseenError, match=text):
        net_of(**settings)


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(UnseenError, match="conv or linear layer"):
        BNN(nn.Sequential(nn.BatchNorm1d(3)))
