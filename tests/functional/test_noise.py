"""Eq. 2 and the KL divergence by hand."""

from __future__ import annotations

import pytest
import torch

from unseen.functional.noise import Gaussian, kl_divergence, noise_amount, perturb


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, 2 + 1.3132617),  # softplus(0.5 + 0.25 * 2) = softplus(1)
        ({"unit": 3.0}, 2 + 3 * 1.3132617),
        ({"sign": "both"}, 3.0),
        ({"sign": "both", "act": "gain"}, 2 * 2.7182818),
        ({"act": "gain", "unit": 0.5}, 2 * 1.9282815),  # exp(0.5 * softplus(1))
        ({"sign": "both", "amount": torch.tensor(0.25)}, 2.25),
    ],
)
def test_perturb_by_hand(settings, expected):
    gaussian = Gaussian(torch.tensor([0.5]), torch.tensor([0.25]))
    out = perturb(torch.tensor([2.0]), gaussian, torch.tensor([2.0]), **settings)
    assert float(out) == pytest.approx(expected, rel=1e-5)


def test_perturb_without_eps_adds_the_mean():
    gaussian = Gaussian(torch.tensor([0.5]), torch.tensor([0.25]))
    assert float(perturb(torch.tensor([2.0]), gaussian, None, sign="both")) == 2.5


def test_amount_is_the_strength_where_a_feature_receives_noise():
    strength, uniform = torch.tensor([[0.5], [1.0]]), torch.tensor([[0.1, 0.6], [0.9, 0.2]])
    assert noise_amount(strength, uniform, 0.3).tolist() == [[0.5, 0.0], [0.0, 1.0]]
    assert noise_amount(None, uniform, 0.7).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert noise_amount(strength, None, None) is strength
    assert noise_amount(None, None, None) is None


def test_kl_closed_form_matches_monte_carlo():
    torch.manual_seed(0)
    q = Gaussian(torch.tensor([0.3, -1.0, 0.0]), torch.tensor([0.5, 0.9, 0.2]))
    p = Gaussian(torch.tensor([-0.2, 0.4, 0.0]), torch.tensor([0.8, 0.6, 0.2]))
    normal_q, normal_p = torch.distributions.Normal(*q), torch.distributions.Normal(*p)
    e = normal_q.sample((400_000,))
    estimate = (normal_q.log_prob(e) - normal_p.log_prob(e)).mean(0)
    torch.testing.assert_close(kl_divergence(q, p), estimate, rtol=0.02, atol=0.005)
    assert kl_divergence(q, q).abs().max() < 1e-7


def test_kl_of_a_sigma_that_underflowed_to_zero_is_finite():
    """An ascent may drive sigma to 0 in single precision."""
    sigma = torch.tensor([0.0, 0.5], requires_grad=True)
    kl = kl_divergence(
        Gaussian(torch.zeros(2), sigma), Gaussian(torch.ones(2), torch.tensor([0.0, 0.0]))
    )
    (gradient,) = torch.autograd.grad(kl.sum(), sigma)
    assert kl.isfinite().all() and gradient.isfinite().all() and (kl > 0).all()
