"""Random affine maps against one image, one pixel, one corner at a time."""

from __future__ import annotations

import math

import pytest
import torch

from unseen import UnseenError
from unseen.augmentations import affine
from unseen.augmentations.random_affine import affine_maps, warp


def slow_affine(image, angle, wide, high, slope, right, down):
    """Look up every pixel by hand: bilinear, the border continued."""
    _, height, width = image.shape
    out = torch.zeros_like(image)

    def at(row, column):
        row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
        return image[:, row, column]

    for row in range(height):
        for column in range(width):
            # from pixels to the centre; a larger image reads closer points
            x = (column + 0.5 - width / 2) / wide
            y = (row + 0.5 - height / 2) / high
            x, y = x + slope * y, y
            x, y = (
                x * math.cos(angle) - y * math.sin(angle),
                x * math.sin(angle) + y * math.cos(angle),
            )
            x, y = x + right * width + width / 2 - 0.5, y + down * height + height / 2 - 0.5
            x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
            top, left = math.floor(y), math.floor(x)
            a, b = y - top, x - left
            out[:, row, column] = (
                (1 - a) * (1 - b) * at(top, left)
                + (1 - a) * b * at(top, left + 1)
                + a * (1 - b) * at(top + 1, left)
                + a * b * at(top + 1, left + 1)
            )
    return out


@pytest.mark.parametrize("shape", [(6, 6), (5, 9)])
def test_warp_equals_slow_version(shape):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(3, 2, *shape, generator=g, dtype=torch.float64)
    drawn = 2 * torch.rand(3, 6, generator=g, dtype=torch.float64) - 1
    fast = warp(x, affine_maps(drawn, rotation=40, scale=1.6, shear=0.4, translation=0.2))
    for image, d, made in zip(x, drawn.tolist(), fast, strict=True):
        expected = slow_affine(
            image,
            angle=d[0] * math.radians(40),
            wide=1.6 ** d[1],
            high=1.6 ** d[2],
            slope=0.4 * d[3],
            right=0.2 * d[4],
            down=0.2 * d[5],
        )
        torch.testing.assert_close(made, expected)


def test_affine_moves_every_image_in_its_own_way():
    torch.manual_seed(0)
    image = torch.rand(1, 3, 8, 8).expand(16, -1, -1, -1)
    moved = affine(image, strength=1.0)
    assert len({row.numpy().tobytes() for row in moved}) == 16
    torch.testing.assert_close(affine(image, strength=0.0), image)


def test_affine_draws_strengths_per_image_only_where_it_varies():
    torch.manual_seed(0)
    # a ramp: after a shift alone, the mean tells its size
    ramp = torch.arange(64.0).expand(400, 1, 64, 64) / 64
    still = {"rotation": 0.0, "scale": 1.0, "shear": 0.0, "translation": 0.1, "strength": 1.0}
    spread = {
        vary: (affine(ramp, vary=vary, **still) - ramp)[:, 0, 32, 32].abs()
        for vary in (False, True)
    }
    # |U(-1, 1)| has mean 1/2, its product with U(0, 1) has 1/4
    assert spread[False].mean() == pytest.approx(0.05, rel=0.15)
    assert spread[True].mean() == pytest.approx(0.025, rel=0.15)


def test_affine_refuses_wrong_settings():
    with pytest.raises(UnseenError, match=r"affine: strength must be at least 0\.0, not -1\.0"):
        affine(torch.rand(1, 3, 4, 4), strength=-1.0)
    with pytest.raises(UnseenError, match="fill must be one of border, zeros, reflection"):
        affine(torch.rand(1, 3, 4, 4), fill="white")
    with pytest.raises(UnseenError, match="unknown setting angle; known settings: strength, vary"):
        affine(torch.rand(1, 3, 4, 4), angle=3)
