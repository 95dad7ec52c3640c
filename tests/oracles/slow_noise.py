"""Slow twins of the fused noise and of the folded forward pass: one draw at a time."""

from __future__ import annotations

import itertools

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
    h,
    gaussian,
    noise,
    draws,
    batch,
    keep_clean,
    unit=1.0,
    sign="positive",
    act="offset",
    amounts=None,
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
        own_gaussian = gaussians[k if len(gaussians) > 1 else 0]
        amount = None if amounts is None else amounts[k]
        out.append(perturb(own, own_gaussian, eps, unit, sign, act, amount))
    return torch.cat(out)


def slow_site_noise(h: Tensor, gaussian: Gaussian, seed: int, noise) -> Tensor:
    """Apply one draw of a `SiteNoise` to maps h at the site "site", number by number."""
    g = torch.Generator().manual_seed(seed)
    b, c, height, width = h.shape

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, generator=g, dtype=h.dtype)

    strength = rand(b if noise.strength == "sample" else 1) if noise.strength else None
    out = [[[list(row) for row in channel] for channel in sample] for sample in h]
    parts = ["gain", "offset"] if noise.act == "both" else [noise.act]
    for part, act in enumerate(parts):
        per_channel = noise.per == "channel"
        shape = (b, 1, 1, c) if per_channel else (b, height, width, c)
        eps = torch.empty(shape, dtype=h.dtype).normal_(generator=g).expand(b, height, width, c)
        kept = None
        if noise.sparse is not None:
            kept = rand(b, c, 1, 1).expand(h.shape) if per_channel else rand(*h.shape)
        unit = noise.gain_unit if act == "gain" else noise.units["site"]
        for i, j, y, x in itertools.product(range(b), range(c), range(height), range(width)):
            at = (i, part * c + j, y, x)
            e = gaussian.mu[at] + gaussian.sigma[at] * eps[i, y, x, j]
            e = unit * (F.softplus(e) if noise.sign == "positive" else e)
            if strength is not None:
                e = e * strength[i if len(strength) > 1 else 0]
            if kept is not None and kept[i, j, y, x] >= noise.sparse:
                e = e * 0
            value = out[i][j][y][x]
            out[i][j][y][x] = value * e.exp() if act == "gain" else value + e
    return torch.stack([v for s in out for ch in s for row in ch for v in row]).view(h.shape)


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
