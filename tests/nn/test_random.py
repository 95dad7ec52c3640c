"""Random draws: independent of layout and grouping, with gradients where they are needed."""

from __future__ import annotations

import torch

from unseen.nn.random import Draws, fresh_seeds


def test_noise_does_not_depend_on_layout_or_grouping():
    like = torch.empty(2, 3, 4, 4)
    together = Draws([7, 8]).normal(like)
    alone = Draws([8]).normal(like.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(together[1], alone[0], rtol=0, atol=0)
    assert not torch.equal(together[0], together[1])


def test_noise_per_channel_is_constant_over_space():
    like = torch.empty(2, 3, 4, 4)
    for e in Draws([7, 8]).normal(like, "channel"):
        assert e.shape == like.shape and torch.equal(e, e[:, :, :1, :1].expand(like.shape))
        assert len(e[:, :, 0, 0].unique()) == 6
    rows = Draws([7]).normal(torch.empty(5, 6), "channel")[0]  # no space to share it over
    assert len(rows.unique()) == 30
    # The channels of a linear layer come last.
    tokens = Draws([7]).normal(torch.empty(5, 3, 6), "channel", axis=-1)[0]
    assert torch.equal(tokens, tokens[:, :1].expand(5, 3, 6)) and len(tokens.unique()) == 30


def test_noise_is_standard_normal():
    e = Draws(fresh_seeds(1)).normal(torch.empty(200_000))[0]
    assert abs(e.mean()) < 0.01 and abs(e.std() - 1) < 0.01


def test_beta_leaves_the_global_generator_alone_and_carries_gradients():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    a = torch.full((5,), 1.5, requires_grad=True)
    lam = Draws([1, 2]).beta(a, torch.ones(5))
    assert torch.equal(before, torch.get_rng_state())
    assert lam.shape == (2, 5) and not torch.equal(lam[0], lam[1])
    lam.sum().backward()
    assert (a.grad > 0).all()  # a larger a means a larger lambda
