"""Noise heads and the mixup head."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unseen.errors import UnseenError
from unseen.functional.noise import Gaussian
from unseen.nn.heads import GaussianHead, MixupHead
from unseen.nn.random import Draws, draw_mixing

LAYERS = {
    "conv1d": (nn.Conv1d(3, 4, 3, stride=2, padding=1), (5, 3, 9)),
    "conv2d": (nn.Conv2d(3, 4, (3, 5), padding="same", dilation=2), (5, 3, 9, 9)),
    "conv3d": (nn.Conv3d(2, 3, 3, padding=1, padding_mode="circular"), (2, 2, 5, 5, 5)),
    "linear": (nn.Linear(7, 4), (5, 7)),
    "linear over tokens": (nn.Linear(7, 4), (5, 6, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gaussian_head_has_the_geometry_of_its_site(name):
    layer, shape = LAYERS[name]
    x = torch.randn(shape)
    mu, sigma = GaussianHead(layer)(x)
    assert mu.shape == sigma.shape == layer(x).shape


@pytest.mark.parametrize("name", LAYERS)
def test_sigma_equals_the_sigma_of_forward(name):
    layer, shape = LAYERS[name]
    head, x = GaussianHead(layer), torch.randn(shape)
    expected = head(x).sigma
    torch.testing.assert_close(head.sigma(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(head.sigma(x), expected)
        torch.testing.assert_close(head(x).sigma, expected)


@pytest.mark.parametrize("name", LAYERS)
def test_sigma_is_read_at_every_second_position(name):
    layer, shape = LAYERS[name]
    head, x = GaussianHead(layer), torch.randn(shape)
    with torch.no_grad():
        full, sparse = head.sigma(x).movedim(head.axis, 1), head.sigma(x, 2).movedim(head.axis, 1)
    index = (slice(None), slice(None), *[slice(None, None, 2)] * (full.dim() - 2))
    torch.testing.assert_close(sparse, full[index])


def test_mu_and_sigma_are_clamped():
    mu, sigma = GaussianHead(nn.Linear(3, 50))(1000 * torch.randn(20, 3))
    assert mu.min() == -2 and mu.max() == 2
    assert sigma.min() >= 0 and sigma.max() == 1


OUTPUTS = {
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4), (2, 8, 5, 5)),
    "transposed": (nn.ConvTranspose2d(4, 8, 3), (2, 8, 5, 5)),
    "embedding": (nn.Embedding(9, 8), (2, 5, 8)),
    "layer norm": (nn.LayerNorm(8), (2, 5, 8)),
    "layer norm of maps": (nn.LayerNorm([8, 5, 5]), (2, 8, 5, 5)),
    "group norm": (nn.GroupNorm(2, 8), (2, 8, 5, 5)),
    "gru": (nn.GRU(3, 4, bidirectional=True), (2, 5, 8)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_head_over_the_output_is_linear_in_its_channels(name):
    layer, shape = OUTPUTS[name]
    head, h = GaussianHead(layer), torch.randn(shape)
    assert head.width == 8 and head.input_of("not read", h) is h
    mu, sigma = head(h)
    assert mu.shape == sigma.shape == shape
    torch.testing.assert_close(sigma, head.sigma(h))
    position = h.movedim(head.axis, -1)[:, 1] if h.dim() == 3 else h[:, :, 1, 2]
    raw = torch.nn.functional.linear(position, head.net.weight, head.net.bias)
    there = mu.movedim(head.axis, -1)[:, 1] if h.dim() == 3 else mu[:, :, 1, 2]
    torch.testing.assert_close(there, raw[..., :8].clamp(-2, 2))
    full, sparse = head.sigma(h).movedim(head.axis, 1), head.sigma(h, 2).movedim(head.axis, 1)
    index = (slice(None), slice(None), *[slice(None, None, 2)] * (h.dim() - 2))
    torch.testing.assert_close(sparse, full[index])


def test_gaussian_head_refuses_a_layer_without_a_number_of_features():
    with pytest.raises(UnseenError, match='site "act" does not declare its number of features'):
        GaussianHead(nn.ReLU(), "act")


@pytest.mark.parametrize(
    "axis, shape", [(-3, (6, 4, 5, 5)), (-2, (6, 4, 7)), (-1, (6, 4)), (-1, (6, 3, 4))]
)
def test_mixup_head_reads_any_kind_of_site_and_starts_even(axis, shape):
    torch.manual_seed(0)
    mixing = MixupHead(4, axis)(Gaussian(torch.randn(shape), torch.rand(shape)))
    for part, start in zip(mixing, (1.0, 1.0, 0.5), strict=True):
        assert part.shape == (6,)
        assert (part - start).abs().max() < 0.25


@pytest.mark.parametrize("wanted", [0.9, 0.1])
def test_mixup_head_learns_a_b_and_tau(wanted):
    """A loss that wants a certain lambda and no smoothing moves a, b and tau through the draws."""
    torch.manual_seed(0)
    head = MixupHead(4, -3)
    gaussian = Gaussian(torch.randn(64, 4, 3, 3), torch.rand(64, 4, 3, 3))
    optimizer = torch.optim.Adam(head.parameters(), 0.02)
    before = head(gaussian)
    for step in range(150):
        lam, smoothing = draw_mixing(head(gaussian), Draws([step]), temperature=0.3)
        optimizer.zero_grad()
        ((lam - wanted).square().mean() + smoothing.mean()).backward()
        optimizer.step()
    after = head(gaussian)
    change_a = after.a.mean() - before.a.mean()
    change_b = after.b.mean() - before.b.mean()
    if wanted > 0.5:
        assert change_a > 0.3 and change_b < -0.1
    else:
        assert change_a < -0.1 and change_b > 0.3
    assert after.tau.mean() < 0.2
