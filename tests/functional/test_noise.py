"""Eq. 2: heads, draws and the addition of noise, against slow twins."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unseen.errors import UnseenError
from unseen.functional.noise import (
    Draws,
    Gaussian,
    GaussianHead,
    add_noise,
    fresh_seeds,
    kl_divergence,
)

LAYERS = {
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2, padding=1), (5, 3, 9)),
    "conv2d": (nn.Conv2d(3, 4, (3, 5), padding="same", dilation=2), (5, 3, 9, 9)),
    "conv3d": (nn.Conv3d(2, 3, 3, padding=1, padding_mode="circular"), (2, 2, 5, 5, 5)),
    "linear": (nn.Linear(7, 4), (5, 7)),
    "linear over tokens": (nn.Linear(7, 4), (5, 6, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_head_has_its_sites_geometry(name):
    layer, shape = LAYERS[name]
    x = torch.randn(shape)
    mu, sigma = GaussianHead(layer)(x)
    assert mu.shape == sigma.shape == layer(x).shape


@pytest.mark.parametrize("name", LAYERS)
def test_sigma_alone_is_the_sigma_of_the_whole_head(name):
    layer, shape = LAYERS[name]
    head, x = GaussianHead(layer), torch.randn(shape)
    expected = head(x).sigma
    torch.testing.assert_close(head.sigma(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(head.sigma(x), expected)
        torch.testing.assert_close(head(x).sigma, expected)


def test_mu_and_sigma_are_clamped():
    mu, sigma = GaussianHead(nn.Linear(3, 50))(1000 * torch.randn(20, 3))
    assert mu.min() == -2 and mu.max() == 2
    assert sigma.min() >= 0 and sigma.max() == 1


def test_a_layer_that_cannot_be_perturbed_is_named():
    with pytest.raises(
        UnseenError, match='site "act" is a ReLU; noise enters at Conv1d, Conv2d, Conv3d or Linear'
    ):
        GaussianHead(nn.ReLU(), "act")


def slow_add_noise(h, gaussian, noise, draws, batch, keep_clean, unit, sign, act):
    h_slots, g_slots = (
        h.split(batch),
        list(zip(gaussian.mu.split(batch), gaussian.sigma.split(batch), strict=True)),
    )
    out = [h_slots[0]] if keep_clean else []
    for k in range(draws):
        mu, sigma = g_slots[k if len(g_slots) > 1 else 0]
        own = h_slots[0] if len(h_slots) == 1 else h_slots[len(h_slots) - draws + k]
        e = mu + sigma * noise[k] if noise is not None else mu
        e = unit * (F.softplus(e) if sign == "positive" else e)
        out.append(own * e.exp() if act == "gain" else own + e)
    return torch.cat(out)


@pytest.mark.parametrize(
    "h_slots, keep_clean", [(1, False), (1, True), (3, False), (4, False), (4, True)]
)  # 3: no clean slot to keep
@pytest.mark.parametrize("gaussian_slots", [1, 3])
@pytest.mark.parametrize("noisy, unit", [(False, 1.0), (True, 1.0), (True, 2.5)])
@pytest.mark.parametrize("sign", ["positive", "both"])
@pytest.mark.parametrize("act", ["offset", "gain"])
def test_fast_noise_equals_slow_noise_in_values_and_gradients(
    h_slots, gaussian_slots, keep_clean, noisy, unit, sign, act
):
    torch.manual_seed(0)
    batch, draws, shape = 2, 3, (4, 5, 5)
    h = torch.randn(h_slots * batch, *shape, dtype=torch.float64, requires_grad=True)
    mu = torch.randn(gaussian_slots * batch, *shape, dtype=torch.float64, requires_grad=True)
    sigma = torch.rand(gaussian_slots * batch, *shape, dtype=torch.float64, requires_grad=True)
    noise = (
        [torch.randn(batch, *shape, dtype=torch.float64) for _ in range(draws)] if noisy else None
    )
    results = []
    for make in (add_noise, slow_add_noise):
        out = make(h, Gaussian(mu, sigma), noise, draws, batch, keep_clean, unit, sign, act)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        grads = torch.autograd.grad(
            (out * weights).sum(), (h, mu, sigma), allow_unused=True, materialize_grads=True
        )
        results.append((out, *grads))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)


def test_noise_does_not_depend_on_layout_or_on_how_draws_are_grouped():
    like = torch.empty(2, 3, 4, 4)
    together = Draws([7, 8]).normal(like)
    alone = Draws([8]).normal(like.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(together[1], alone[0], rtol=0, atol=0)
    assert not torch.equal(together[0], together[1])


def test_noise_over_channels_is_the_same_everywhere_in_space():
    like = torch.empty(2, 3, 4, 4)
    for e in Draws([7, 8]).normal(like, "channel"):
        assert e.shape == like.shape and torch.equal(e, e[:, :, :1, :1].expand(like.shape))
        assert len(e[:, :, 0, 0].unique()) == 6
    rows = Draws([7]).normal(torch.empty(5, 6), "channel")[0]  # no space to share it over
    assert len(rows.unique()) == 30
    tokens = Draws([7]).normal(torch.empty(5, 3, 6), "channel", axis=-1)[
        0
    ]  # a linear layer's channels come last
    assert torch.equal(tokens, tokens[:, :1].expand(5, 3, 6)) and len(tokens.unique()) == 30


def test_noise_is_standard_normal():
    e = Draws(fresh_seeds(1)).normal(torch.empty(200_000))[0]
    assert abs(e.mean()) < 0.01 and abs(e.std() - 1) < 0.01


def test_beta_draws_leave_the_global_generator_alone_and_carry_gradients():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    a = torch.full((5,), 1.5, requires_grad=True)
    lam = Draws([1, 2]).beta(a, torch.ones(5))
    assert torch.equal(before, torch.get_rng_state())
    assert lam.shape == (2, 5) and not torch.equal(lam[0], lam[1])
    lam.sum().backward()
    assert (a.grad > 0).all()  # a larger a means a larger lambda


def test_kl_closed_form_against_monte_carlo():
    torch.manual_seed(0)
    q = Gaussian(torch.tensor([0.3, -1.0, 0.0]), torch.tensor([0.5, 0.9, 0.2]))
    p = Gaussian(torch.tensor([-0.2, 0.4, 0.0]), torch.tensor([0.8, 0.6, 0.2]))
    normal_q, normal_p = torch.distributions.Normal(*q), torch.distributions.Normal(*p)
    e = normal_q.sample((400_000,))
    estimate = (normal_q.log_prob(e) - normal_p.log_prob(e)).mean(0)
    torch.testing.assert_close(kl_divergence(q, p), estimate, rtol=0.02, atol=0.005)
    assert kl_divergence(q, q).abs().max() < 1e-7


def test_the_kl_of_a_scale_that_has_rounded_to_zero_is_finite_and_so_is_its_gradient():
    """As printed, an ascent may drive sigma so far down that it is 0 in single precision."""
    sigma = torch.tensor([0.0, 0.5], requires_grad=True)
    kl = kl_divergence(
        Gaussian(torch.zeros(2), sigma), Gaussian(torch.ones(2), torch.tensor([0.0, 0.0]))
    )
    (gradient,) = torch.autograd.grad(kl.sum(), sigma)
    assert kl.isfinite().all() and gradient.isfinite().all() and (kl > 0).all()
