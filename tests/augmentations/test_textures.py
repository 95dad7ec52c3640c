"""Textures and mixtures with them, against formulas written out."""

from __future__ import annotations

import math

import pytest
import torch

from unseen import UnseenError
from unseen.augmentations import AUGMENTATIONS, pixmix, texture
from unseen.augmentations.random_texture import (
    add,
    draw_textures,
    draw_weights,
    filtered_noise,
    lay_over,
    multiply,
)


def slow_filtered_noise(white, exponent, angle, stretch):
    """Filter one channel by sums over all frequencies."""
    height, width = white.shape
    out = torch.zeros(height, width, dtype=torch.complex128)
    for v in range(height):
        for u in range(width):
            fy = (v if v < (height + 1) // 2 else v - height) / height
            fx = (u if u < (width + 1) // 2 else u - width) / width
            rows = 2 * math.pi * v / height * torch.arange(height, dtype=torch.float64)
            columns = 2 * math.pi * u / width * torch.arange(width, dtype=torch.float64)
            waves = rows[:, None] + columns
            coefficient = (white * torch.exp(-1j * waves)).sum()
            along = (fx * math.cos(angle) + fy * math.sin(angle)) * stretch
            beside = (fy * math.cos(angle) - fx * math.sin(angle)) / stretch
            frequency = max(math.hypot(along, beside), 0.5 / max(height, width))
            gain = 0 if u == v == 0 else frequency**-exponent
            out += gain * coefficient * torch.exp(1j * waves) / (height * width)
    return out.real


def test_filtered_noise_equals_slow_version():
    # Odd sizes: every frequency but 0 then has a conjugate of its own.
    white = torch.randn(2, 1, 5, 7, dtype=torch.float64)
    values = [(0.5, 0.3, 1.7), (2.0, 1.9, 0.6)]
    columns = torch.tensor(values, dtype=torch.float64).T.reshape(3, 2, 1, 1, 1)
    fast = filtered_noise(white, *columns)
    for made, noise, value in zip(fast, white, values, strict=True):
        torch.testing.assert_close(made[0], slow_filtered_noise(noise[0], *value))


def test_lay_over_gives_ground_and_ink():
    x = torch.tensor([0.0, 1.0, 0.25]).reshape(1, 1, 1, 3)
    ground, ink = torch.full_like(x, 0.2), torch.full_like(x, 0.6)
    torch.testing.assert_close(lay_over(x, ground, ink).flatten(), torch.tensor([0.2, 0.6, 0.3]))


def test_mixtures_equal_formulas():
    x, other = torch.rand(3, 2, 4, 4), torch.rand(3, 2, 4, 4)
    weights = draw_weights(3, 3.0)
    for n in range(3):
        a, b = weights[0, n].item(), weights[1, n].item()
        for index in [(n, 0, 0, 0), (n, 1, 3, 2)]:
            p, q = x[index].item(), other[index].item()
            assert add(x, other, weights)[index].item() == pytest.approx(
                (a * (2 * p - 1) + b * (2 * q - 1) + 1) / 2, abs=1e-5
            )
            assert multiply(x, other, weights)[index].item() == pytest.approx(
                max(2 * p, 1e-3) ** a * max(2 * q, 1e-3) ** b / 2, rel=1e-4
            )


def test_weights_lie_between_or_beyond():
    torch.manual_seed(0)
    image, other = draw_weights(2000, 3.0).flatten(1)
    beyond = image > 1
    assert 0.4 < beyond.float().mean() < 0.6
    assert (other[beyond] <= 0).all() and (other[~beyond] >= 0).all()
    assert image[~beyond].mean() == pytest.approx(3 / 4, abs=0.03)  # mean of Beta(3, 1)
    assert other[beyond].mean() == pytest.approx(-1 / 4, abs=0.03)


def test_neutral_weights_change_nothing():
    x, other = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)
    weights = torch.tensor([1.0, 0.0]).reshape(2, 1, 1, 1, 1)
    torch.testing.assert_close(add(x, other, weights), x)
    torch.testing.assert_close(multiply(x, other, weights), x.clamp_min(5e-4))


def test_textures_vary_over_space_and_images():
    torch.manual_seed(0)
    drawn = draw_textures(torch.zeros(64, 3, 16, 16))
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert (drawn.std((2, 3)).mean(1) > 0.01).all()
    assert drawn.mean((1, 2, 3)).std() > 0.05


@pytest.mark.parametrize("augment", [texture, pixmix])
def test_images_stay_in_range_and_share_is_kept(augment):
    torch.manual_seed(0)
    x = torch.rand(200, 3, 8, 8)
    out = augment(x, share=0.5)
    assert out.shape == x.shape and out.min() >= 0 and out.max() <= 1
    changed = (out != x).flatten(1).any(1).float().mean()
    most = 0.5 if augment is texture else 0.4  # a fifth of the images have no round
    assert changed == pytest.approx(most, abs=0.12)
    assert torch.equal(augment(x, share=0.0), x)


@pytest.mark.parametrize("augment", [texture, pixmix])
def test_other_ranges_are_refused(augment):
    with pytest.raises(UnseenError, match=r"in 0\.\.1"):
        augment(torch.full((2, 3, 8, 8), 2.0))


def test_they_are_registered():
    assert AUGMENTATIONS["texture"] is texture and AUGMENTATIONS["pixmix"] is pixmix
