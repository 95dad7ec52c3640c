"""Calibrated methods to export, with a small accuracy estimator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import unseen
from unseen import AccuracyEstimator
from unseen.api import Method

SHIFTS = {
    "noise": [lambda x, g: (x[0] + 0.5 * torch.randn(x[0].shape, generator=g),)],
    "dark": [lambda x, g: (0.3 * x[0],)],
    "bright": [lambda x, g: (x[0] + 1.0,)],
}

# Of tokens and their mask: replaced, rolled, and cut texts.
TOKEN_SHIFTS = {
    "replaced": [lambda x, g: ((x[0] * 7 + 3) % 30, *x[1:])],
    "rolled": [lambda x, g: (x[0].roll(2, 1), *x[1:])],
    "one": [lambda x, g: (x[0] * 0 + 5, *x[1:])],
}


def calibrated(
    model: nn.Module,
    sites: list[str],
    embedding: str,
    x: Any,
    classes: int,
    *,
    at: str = "site",
    maps: tuple[int, ...] = (),
    **settings: Any,
) -> Method:
    """Return a method around the model, calibrated on the samples, without an estimator."""
    torch.manual_seed(1)
    net = unseen.UncertaintyGuided(model, sites=sites, embedding=embedding, **settings)
    n = len(x) if isinstance(x, Tensor) else len(next(iter(x.values())))
    y = torch.randint(classes, (n, *maps), generator=torch.Generator().manual_seed(0))
    loader = [(x, y)]
    net.prepare(loader[0])  # makes the head of a place that does not declare its channels
    net.detector = net.make_detector(at)
    unseen.calibrate(net, loader, loader)
    net.keep_held_out(None)
    return net


def with_estimator(net: Method, x: Any, y: Tensor) -> Method:
    """Fit a small estimator to the samples under three shifts."""
    shifts = SHIFTS if isinstance(x, Tensor) else TOKEN_SHIFTS
    net.accuracy_estimator = AccuracyEstimator.fit(net, [(x, y)], shifts=shifts, samples=30)
    return net
