"""Small models and slow, obvious twins of fast code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch
from unseen.nn.perturbed_forward import head_key


class TinyNet(nn.Module):
    """conv-pool-conv-fc-fc on (N, 2, 8, 8), smooth enough for finite differences."""

    def __init__(self, classes: int = 3, norm: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(4, 5, 3)
        self.fc1 = nn.Linear(5, 6)
        self.fc2 = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(torch.tanh(self.norm(self.conv1(x))), 2)
        x = torch.tanh(self.conv2(x).mean((2, 3)))
        return self.fc2(torch.tanh(self.fc1(x)))


def tiny_batch(
    n: int = 4, classes: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Batch:
    g = torch.Generator().manual_seed(seed)
    return Batch(
        (torch.randn(n, 2, 8, 8, generator=g, dtype=dtype),),
        torch.randint(classes, (n,), generator=g),
    )


def slow_noise(
    seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """The noise of one draw at each site, drawn the way `Draws` documents: channels last, site after site."""
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


def slow_two_site_pass(
    net, params: dict[str, Tensor], x: Tensor, seed: int, heads_read: str, lam: Tensor | None = None
):
    """One draw of TinyNet with noise at conv1 and conv2, spelled out; returns (logits, embedding, gaussian 1, gaussian 2)."""

    def conv(name: str, t: Tensor) -> Tensor:
        return F.conv2d(t, params[f"{name}.weight"], params[f"{name}.bias"])

    head1, head2 = net.heads[head_key("conv1")], net.heads[head_key("conv2")]
    h1 = conv("conv1", x)
    g1 = head1(x)
    clean_in = F.avg_pool2d(torch.tanh(h1), 2)
    h2_clean = conv("conv2", clean_in)
    eps1, eps2 = slow_noise(seed, tuple(h1.shape), tuple(h2_clean.shape), dtype=x.dtype)
    h1_plus = h1 + F.softplus(g1.mu + g1.sigma * eps1)
    plus_in = F.avg_pool2d(torch.tanh(h1_plus), 2)
    g2 = head2(clean_in if heads_read == "clean" else plus_in)
    h2_plus = conv("conv2", plus_in) + F.softplus(g2.mu + g2.sigma * eps2)
    if lam is not None:
        lam = lam.view(-1, 1, 1, 1)
        h2_plus = lam * h2_clean + (1 - lam) * h2_plus
    z = F.linear(torch.tanh(h2_plus.mean((2, 3))), params["fc1.weight"], params["fc1.bias"])
    return F.linear(torch.tanh(z), params["fc2.weight"], params["fc2.bias"]), z, g1, g2


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * logits.log_softmax(1)).sum(1).mean()
