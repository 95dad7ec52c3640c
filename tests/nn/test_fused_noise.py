"""The fused noise against `perturb` in a loop."""

from __future__ import annotations

import pytest
import torch
from slow_noise import slow_add_noise

from unseen.functional.noise import Gaussian
from unseen.nn.fused_noise import add_noise


@pytest.mark.parametrize(
    "h_slots, keep_clean", [(1, False), (1, True), (3, False), (4, False), (4, True)]
)  # 3: no clean slot to keep
@pytest.mark.parametrize("gaussian_slots", [1, 3])
@pytest.mark.parametrize("noisy, unit", [(False, 1.0), (True, 1.0), (True, 2.5)])
@pytest.mark.parametrize("sign", ["positive", "both"])
@pytest.mark.parametrize("act", ["offset", "gain"])
@pytest.mark.parametrize("scaled", [False, True])
def test_add_noise_equals_perturb_in_values_and_gradients(
    h_slots, gaussian_slots, keep_clean, noisy, unit, sign, act, scaled
):
    torch.manual_seed(0)
    batch, draws, shape = 2, 3, (4, 5, 5)
    h = torch.randn(h_slots * batch, *shape, dtype=torch.float64, requires_grad=True)
    mu = torch.randn(gaussian_slots * batch, *shape, dtype=torch.float64, requires_grad=True)
    sigma = torch.rand(gaussian_slots * batch, *shape, dtype=torch.float64, requires_grad=True)
    noise = (
        [torch.randn(batch, *shape, dtype=torch.float64) for _ in range(draws)] if noisy else None
    )
    amounts = [torch.rand(batch, 4, 1, 1).double() for _ in range(draws)] if scaled else None
    results = []
    for make in (add_noise, slow_add_noise):
        out = make(
            h, Gaussian(mu, sigma), noise, draws, batch, keep_clean, unit, sign, act, amounts
        )
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        grads = torch.autograd.grad(
            (out * weights).sum(), (h, mu, sigma), allow_unused=True, materialize_grads=True
        )
        results.append((out, *grads))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
