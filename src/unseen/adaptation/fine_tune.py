"""Few-shot adaptation as the paper does it: a few steps from the meta-learned weights on the labelled target samples."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from unseen.contracts import Method, check_targets, cross_entropy, inputs, positive, whole
from unseen.errors import UnseenError
from unseen.sites import laid_out_for


def draw_shots(y: Tensor, shots: int, classes: int, generator: torch.Generator) -> Tensor:
    """Indices of `shots` random samples of each class."""
    picks = []
    for label in range(classes):
        of_class = torch.nonzero(y == label).flatten()
        if len(of_class) < shots:
            raise UnseenError(f"class {label} has {len(of_class)} labelled samples in this domain, {shots} were asked for")
        picks.append(of_class[torch.randperm(len(of_class), generator=generator)[:shots]])
    return torch.cat(picks)


def fine_tune(
    model: nn.Module,
    x: Any,
    y: Tensor,
    *,
    steps: int = 100,
    lr: float = 1e-4,
    batch: int = 32,
    seed: int = 0,
    ignore_label: int = -100,
) -> nn.Module:
    """A copy of the model after that many Adam steps on the labelled samples; BatchNorm keeps its statistics."""
    positive("lr", lr)
    whole("steps", steps, 1)
    x = inputs(x)
    if not isinstance(y, Tensor) or len(y) != len(x[0]) or not len(y):
        found = f"{len(y)} labels" if isinstance(y, Tensor) else type(y).__name__
        raise UnseenError(f"y must be a tensor of one label for each of the {len(x[0])} samples, not {found}")
    adapted = copy.deepcopy(model.model if isinstance(model, Method) else model).eval()
    x = laid_out_for(adapted, x)
    y = y.to(x[0].device)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr, fused=True)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < min(batch, len(y)):
            order = torch.randperm(len(y), generator=generator)
        now, order = order[:batch], order[batch:]
        logits = adapted(*(t[now] for t in x))
        check_targets(logits, y[now], ignore_label)
        optimizer.zero_grad()
        cross_entropy(logits, y[now], ignore_label).backward()
        optimizer.step()
    return adapted
