"""Random convolutions against one convolution at a time."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from unseen.functional.kernels import kernel_width, perturb_by_kernel


def slow(image, e, size):
    """Convolve one image (C, H, W) with one kernel, then give it back its mean and deviation."""
    channels, fan_in = len(image), len(image) * size * size
    weight = e[:-channels].view(channels, channels, size, size) / math.sqrt(fan_in)
    identity = torch.zeros_like(weight)
    for c in range(channels):
        identity[c, c, size // 2, size // 2] = 1
    padded = F.pad(image[None], [size // 2] * 4, mode="replicate")
    deviation = (image.var(correction=0) + 1e-6).sqrt()
    bias = e[-channels:] * deviation
    out = F.conv2d(padded, identity + weight, bias)[0]
    return (out - out.mean()) / (out.var(correction=0) + 1e-6).sqrt() * deviation + image.mean()


@pytest.mark.parametrize("channels, size", [(1, 3), (3, 3), (2, 5), (3, 1)])
def test_every_image_has_kernels_of_its_own(channels, size):
    torch.manual_seed(0)
    h = torch.rand(4, channels, 6, 7, dtype=torch.float64, requires_grad=True)
    e = torch.randn(4, 2, kernel_width(channels, size)).double().requires_grad_()
    fast = perturb_by_kernel(h, e, size)
    rows = [[slow(h[i], e[i, r], size) for r in range(2)] for i in range(4)]
    expected = torch.stack([torch.stack(row) for row in rows])
    torch.testing.assert_close(fast, expected)
    weights = torch.linspace(-1, 1, fast.numel(), dtype=torch.float64).view(fast.shape)
    for a, b in zip(
        torch.autograd.grad((fast * weights).sum(), (h, e)),
        torch.autograd.grad((expected * weights).sum(), (h, e)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_no_noise_is_the_image_and_any_noise_keeps_mean_and_deviation():
    h = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    width = kernel_width(3, 3)
    same = perturb_by_kernel(h, torch.zeros(3, 1, width), 3)[:, 0]
    torch.testing.assert_close(same, h, rtol=1e-4, atol=1e-5)
    wild = perturb_by_kernel(h, 100 * torch.randn(3, 1, width), 3)[:, 0].flatten(1)
    torch.testing.assert_close(wild.mean(1), h.flatten(1).mean(1), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(wild.std(1), h.flatten(1).std(1), rtol=1e-3, atol=1e-3)


def test_image_of_one_colour_has_finite_gradients():
    e = torch.zeros(1, 1, kernel_width(1, 3), requires_grad=True)
    out = perturb_by_kernel(torch.full((1, 1, 4, 4), 0.5), e, 3)
    (gradient,) = torch.autograd.grad(out.square().sum(), e)
    assert out.isfinite().all() and gradient.isfinite().all()
