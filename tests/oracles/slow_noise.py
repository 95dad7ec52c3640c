"""Slow twins of the fused noise and of the folded forward pass: one draw at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.functional.noise import Gaussian, perturb
from unseen.nn.perturbed_forward import head_key


def slow_draw(
    seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Draw the noise of one draw at each site: channels last, site after site."""
    g = torch.Generator().manual_seed(seed)
    out = []
    for b, *rest in shapes:
        if len(rest) == 3:
            c, height, width = rest
            flat = torch.empty(b * height * width * c, dtype=dtype).normal_(generator=g)
            out.append(flat.view(b, height, width, c).permute(0, 3, 1, 2))
        else:
            out.append(torch.empty(b * rest[0], dtype=dtype).normal_(generator=g).view(b, *rest))
    return out


def slow_add_noise(
    h, gaussian, noise, draws, batch, keep_clean, unit=1.0, sign="positive", act="offset"
):
    """Apply `perturb` to each draw in a loop."""
    h_slots = h.split(batch)
    gaussians = [
        Gaussian(mu, sigma)
        for mu, sigma in zip(gaussian.mu.split(batch), gaussian.sigma.split(batch), strict=True)
    ]
    out = [h_slots[0]] if keep_clean else []
    for k in range(draws):
        own = h_slots[0] if len(h_slots) == 1 else h_slots[len(h_slots) - draws + k]
        eps = None if noise is None else noise[k]
        out.append(perturb(own, gaussians[k if len(gaussians) > 1 else 0], eps, unit, sign, act))
    return torch.cat(out)


def slow_two_site_forward(
    net,
    params: dict[str, Tensor],
    x: Tensor,
    seed: int,
    head_input: str,
    lam: Tensor | None = None,
):
    """Run one draw of TinyNet with noise at conv1 and conv2.

    Return (logits, embedding, gaussian of conv1, gaussian of conv2).
    """

    def conv(name: str, t: Tensor) -> Tensor:
        return F.conv2d(t, params[f"{name}.weight"], params[f"{name}.bias"])

    head1, head2 = net.heads[head_key("conv1")], net.heads[head_key("conv2")]
    h1 = conv("conv1", x)
    g1 = head1(x)
    clean_in = F.avg_pool2d(torch.tanh(h1), 2)
    h2_clean = conv("conv2", clean_in)
    eps1, eps2 = slow_draw(seed, tuple(h1.shape), tuple(h2_clean.shape), dtype=x.dtype)
    plus_in = F.avg_pool2d(torch.tanh(perturb(h1, g1, eps1)), 2)
    g2 = head2(clean_in if head_input == "clean" else plus_in)
    h2_plus = perturb(conv("conv2", plus_in), g2, eps2)
    if lam is not None:
        lam = lam.view(-1, 1, 1, 1)
        h2_plus = lam * h2_clean + (1 - lam) * h2_plus
    z = F.linear(torch.tanh(h2_plus.mean((2, 3))), params["fc1.weight"], params["fc1.bias"])
    return F.linear(torch.tanh(z), params["fc2.weight"], params["fc2.bias"]), z, g1, g2


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * logits.log_softmax(1)).sum(1).mean()
