"""Eq. 3 by hand."""

from __future__ import annotations

import torch

from unseen.functional.mixup import (
    Mixing,
    even_mixing,
    mix_features,
    mix_targets,
    relaxed_bernoulli,
    smooth,
)
from unseen.functional.noise import Gaussian


def test_smooth_by_hand():
    torch.testing.assert_close(
        smooth(torch.tensor([2, 0]), 3, 0.9), torch.tensor([[0.05, 0.05, 0.9], [0.9, 0.05, 0.05]])
    )


def test_mix_targets_by_hand():
    y, lam, smoothing = (
        torch.tensor([0, 1, 2]),
        torch.tensor([1.0, 0.0, 0.25]),
        torch.tensor([1.0, 1.0, 1.0]),
    )
    expected = torch.tensor(
        [
            [1.0, 0.0, 0.0],  # lambda 1: the label itself
            [0.1, 0.8, 0.1],  # lambda 0: the smoothed label
            [0.075, 0.075, 0.85],  # 0.25 * 1 + 0.75 * 0.8
        ]
    )
    torch.testing.assert_close(mix_targets(y, lam, smoothing, 3, rho=0.8), expected)


def test_mix_targets_without_smoothing_keeps_the_label():
    y, lam = torch.tensor([0, 1]), torch.tensor([0.3, 0.9])
    torch.testing.assert_close(mix_targets(y, lam, torch.zeros(2), 3, rho=0.9), torch.eye(3)[y])


def test_mix_targets_per_pixel():
    y = torch.tensor([[[0, 1]], [[1, 1]]])  # (2, 1, 2)
    target = mix_targets(y, torch.tensor([0.0, 1.0]), torch.ones(2), 2, rho=0.7)
    assert target.shape == (2, 2, 1, 2)
    torch.testing.assert_close(target[0, :, 0, 0], torch.tensor([0.7, 0.3]))
    torch.testing.assert_close(target[0, :, 0, 1], torch.tensor([0.3, 0.7]))
    torch.testing.assert_close(target[1, :, 0, 1], torch.tensor([0.0, 1.0]))


def test_mix_targets_sum_to_one_and_carry_gradients():
    lam = torch.tensor([0.4, 0.6], requires_grad=True)
    smoothing = torch.tensor([0.5, 0.2], requires_grad=True)
    target = mix_targets(torch.tensor([1, 0]), lam, smoothing, 4, rho=0.9)
    torch.testing.assert_close(target.sum(1), torch.ones(2))
    target[0, 1].backward()
    assert lam.grad[0] > 0 and smoothing.grad[0] < 0 and lam.grad[1] == 0


def test_mix_features_by_hand():
    h, h_plus = torch.zeros(2, 3, 1, 1), torch.ones(2, 3, 1, 1)
    mixed = mix_features(h, h_plus, torch.tensor([1.0, 0.25]))
    torch.testing.assert_close(mixed[:, 0, 0, 0], torch.tensor([0.0, 0.75]))


def test_relaxed_bernoulli_exceeds_half_with_probability_tau():
    uniform = torch.rand(50_000, generator=torch.Generator().manual_seed(0))
    for tau in (0.1, 0.5, 0.8):
        smoothing = relaxed_bernoulli(torch.tensor(tau), uniform, temperature=0.3)
        assert abs((smoothing > 0.5).float().mean() - tau) < 0.01


def test_even_mixing_is_uniform_and_even():
    mixing = even_mixing(Gaussian(torch.randn(3, 4), torch.rand(3, 4)))
    assert isinstance(mixing, Mixing)
    assert mixing.a.tolist() == mixing.b.tolist() == [1.0] * 3 and mixing.tau.tolist() == [0.5] * 3
