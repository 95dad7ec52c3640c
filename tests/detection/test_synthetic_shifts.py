"""Synthetic shifts against slow reference code."""

from __future__ import annotations

import math
import sys

import torch

from unseen.detection.synthetic_shifts import blur


def slow_blur(x: torch.Tensor, sigma: float, radius: int) -> torch.Tensor:
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(-radius, radius + 1)]
    total = sum(weights)
    height, width = x.shape[2:]
    out = torch.zeros_like(x)
    for row in range(height):
        for column in range(width):
            for i, a in enumerate(weights):
                for j, b in enumerate(weights):
                    r = min(max(row + i - radius, 0), height - 1)
                    c = min(max(column + j - radius, 0), width - 1)
                    out[:, :, row, column] += a * b / total**2 * x[:, :, r, c]
    return out


def test_blur_equals_the_loop_over_pixels_and_needs_no_kornia(monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia", None)
    x = torch.rand(2, 3, 8, 9, generator=torch.Generator().manual_seed(0))
    sigma = 4.0 * 8 / 32
    torch.testing.assert_close(
        blur(x, 4.0, torch.Generator()), slow_blur(x, sigma, round(2 * sigma))
    )
