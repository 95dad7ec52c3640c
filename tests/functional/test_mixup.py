"""Eq. 3: mixed labels against hand numbers, and a mixup head that really learns."""

from __future__ import annotations

import pytest
import torch

from unseen.functional.mixup import (
    Mixing,
    MixupHead,
    draw_mixing,
    even_mixing,
    lottery,
    mix_targets,
    smooth,
)
from unseen.functional.noise import Draws, Gaussian


def test_smoothing_by_hand():
    torch.testing.assert_close(
        smooth(torch.tensor([2, 0]), 3, 0.9), torch.tensor([[0.05, 0.05, 0.9], [0.9, 0.05, 0.05]])
    )


def test_mixed_targets_by_hand_each_lambda_with_its_own_label():
    y, lam, won = (
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
    torch.testing.assert_close(mix_targets(y, lam, won, 3, rho=0.8), expected)


def test_a_lost_lottery_leaves_the_label_hard_whatever_lambda():
    y, lam = torch.tensor([0, 1]), torch.tensor([0.3, 0.9])
    torch.testing.assert_close(mix_targets(y, lam, torch.zeros(2), 3, rho=0.9), torch.eye(3)[y])


def test_mixed_targets_per_pixel():
    y = torch.tensor([[[0, 1]], [[1, 1]]])  # (2, 1, 2)
    target = mix_targets(y, torch.tensor([0.0, 1.0]), torch.ones(2), 2, rho=0.7)
    assert target.shape == (2, 2, 1, 2)
    torch.testing.assert_close(target[0, :, 0, 0], torch.tensor([0.7, 0.3]))
    torch.testing.assert_close(target[0, :, 0, 1], torch.tensor([0.3, 0.7]))
    torch.testing.assert_close(target[1, :, 0, 1], torch.tensor([0.0, 1.0]))


def test_targets_sum_to_one_and_carry_gradients():
    lam = torch.tensor([0.4, 0.6], requires_grad=True)
    won = torch.tensor([0.5, 0.2], requires_grad=True)
    target = mix_targets(torch.tensor([1, 0]), lam, won, 4, rho=0.9)
    torch.testing.assert_close(target.sum(1), torch.ones(2))
    target[0, 1].backward()
    assert lam.grad[0] > 0 and won.grad[0] < 0 and lam.grad[1] == 0


def test_the_relaxed_lottery_wins_as_often_as_tau_says():
    uniform = torch.rand(50_000, generator=torch.Generator().manual_seed(0))
    for tau in (0.1, 0.5, 0.8):
        won = lottery(torch.tensor(tau), uniform, temperature=0.3)
        assert abs((won > 0.5).float().mean() - tau) < 0.01


@pytest.mark.parametrize(
    "axis, shape", [(-3, (6, 4, 5, 5)), (-2, (6, 4, 7)), (-1, (6, 4)), (-1, (6, 3, 4))]
)
def test_the_head_reads_any_kind_of_site_and_starts_even(axis, shape):
    torch.manual_seed(0)
    mixing = MixupHead(4, axis)(Gaussian(torch.randn(shape), torch.rand(shape)))
    for part, start in zip(mixing, (1.0, 1.0, 0.5), strict=True):
        assert part.shape == (6,)
        assert (part - start).abs().max() < 0.25


@pytest.mark.parametrize("wanted", [0.9, 0.1])
def test_the_head_learns_where_a_b_and_tau_should_move(wanted):
    """lambda shall be near `wanted`, and the lottery shall be lost: a, b and tau must follow through the draws."""
    torch.manual_seed(0)
    head = MixupHead(4, -3)
    gaussian = Gaussian(torch.randn(64, 4, 3, 3), torch.rand(64, 4, 3, 3))
    optimizer = torch.optim.Adam(head.parameters(), 0.02)
    before = head(gaussian)
    for step in range(150):
        lam, won = draw_mixing(head(gaussian), Draws([step]), temperature=0.3)
        optimizer.zero_grad()
        ((lam - wanted).square().mean() + won.mean()).backward()
        optimizer.step()
    after = head(gaussian)
    toward_a = after.a.mean() - before.a.mean()
    toward_b = after.b.mean() - before.b.mean()
    assert (
        (toward_a > 0.3 and toward_b < -0.1)
        if wanted > 0.5
        else (toward_a < -0.1 and toward_b > 0.3)
    )
    assert after.tau.mean() < 0.2


def test_the_random_ablation_is_uniform_and_even():
    mixing = even_mixing(Gaussian(torch.randn(3, 4), torch.rand(3, 4)))
    assert isinstance(mixing, Mixing)
    assert mixing.a.tolist() == mixing.b.tolist() == [1.0] * 3 and mixing.tau.tolist() == [0.5] * 3
