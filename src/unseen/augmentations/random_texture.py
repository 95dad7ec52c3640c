"""Random textures: images laid over them, or mixed with them as in PixMix.

A texture is noise whose power falls with frequency, 1/f^(2a), with an exponent, a direction and
colours of its own. PixMix (Hendrycks et al., CVPR 2022) mixes with pictures of fractals, which
would have to be downloaded; textures are drawn instead, one per image and round.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unseen.augmentations.settings import Count, Positive, Probability, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs

EXPONENTS = (0.5, 3.0)  # of the amplitude: from grainy to smooth
STEEP, STEEP_SHARE = 4.0, 0.3  # textures of patches with edges, not of shades
FLOOR = 1e-3  # of factors: a power of 0 may be infinite


@augmentation
def texture(x: Tensor, share: Probability = 1.0) -> Tensor:
    """Lay each image over a texture, as bright ink on a surface, or take their difference.

    For images of strokes on an even ground, such as digits and drawings: ground and ink get random
    textures, the shapes stay. MNIST-M is made by such a difference with photographs.

    Args:
        share: Probability that an image is changed.
    """
    x = in_unit_range(images(inputs(x), "texture"), "texture")
    ground, ink = (draw_textures(x) for _ in range(2))
    differs = (torch.rand(len(x), 1, 1, 1) < 0.5).to(x.device)
    out = torch.where(differs, (x - ground).abs(), lay_over(x, ground, ink))
    return _select(out, x, share)


@augmentation
def pixmix(x: Tensor, rounds: Count = 4, beta: Positive = 3.0, share: Probability = 1.0) -> Tensor:
    """Add textures to each image or multiply it with them, 0 to `rounds` times.

    Args:
        rounds: Largest number of mixtures; the number is uniform, drawn for each image.
        beta: Of the Beta distributions of the weights; larger leaves more of the image.
        share: Probability that an image is changed.
    """
    x = in_unit_range(images(inputs(x), "pixmix"), "pixmix")
    count, out = len(x), x
    wanted = torch.randint(rounds + 1, (count, 1, 1, 1)).to(x.device)
    for done in range(int(wanted.max()) if count else 0):
        weights = draw_weights(count, beta).to(x)
        adds = (torch.rand(count, 1, 1, 1) < 0.5).to(x.device)
        other = draw_textures(x)
        mixed = torch.where(adds, add(out, other, weights), multiply(out, other, weights))
        out = torch.where(wanted > done, mixed.clamp(0, 1), out)
    return _select(out, x, share)


def draw_textures(like: Tensor) -> Tensor:
    """Draw a texture in 0..1 for each image of a batch (N, C, H, W)."""
    count, channels, height, width = like.shape
    exponent = EXPONENTS[0] + (EXPONENTS[1] - EXPONENTS[0]) * torch.rand(count, 1, 1, 1)
    angle = math.pi * torch.rand(count, 1, 1, 1)
    stretch = torch.exp(0.7 * torch.randn(count, 1, 1, 1))
    shades = filtered_noise(torch.randn(count, channels, height, width), exponent, angle, stretch)
    # One brightness for all channels, and more or less colour.
    colours = torch.rand(count, 1, 1) * torch.randn(count, channels, channels)
    shades = torch.einsum("noc,nchw->nohw", colours + torch.randn(count, channels, 1), shades)
    shades = shades / shades.std((1, 2, 3), keepdim=True).clamp_min(1e-6)
    contrast = torch.exp(0.7 * torch.randn(count, 1, 1, 1))
    tint = 0.7 * torch.randn(count, channels, 1, 1)
    steep = 1 + (STEEP - 1) * (torch.rand(count, 1, 1, 1) < STEEP_SHARE).float()
    return torch.sigmoid(steep * (contrast * shades + tint)).to(like)


def filtered_noise(white: Tensor, exponent: Tensor, angle: Tensor, stretch: Tensor) -> Tensor:
    """Give white noise (N, C, H, W) amplitudes of frequency to the power -exponent; the mean is 0.

    The frequencies are stretched by a factor along a direction, and shortened across it.
    """
    height, width = white.shape[2:]
    down = torch.fft.fftfreq(height, dtype=white.dtype)[:, None]
    across = torch.fft.rfftfreq(width, dtype=white.dtype)[None, :]
    along = (across * angle.cos() + down * angle.sin()) * stretch
    beside = (down * angle.cos() - across * angle.sin()) / stretch
    frequency = (along.square() + beside.square()).sqrt().clamp_min(0.5 / max(height, width))
    gain = frequency ** (-exponent)
    gain[..., 0, 0] = 0
    return torch.fft.irfft2(torch.fft.rfft2(white) * gain, s=(height, width))


def lay_over(x: Tensor, ground: Tensor, ink: Tensor) -> Tensor:
    """Return the ground where the image is 0 and the ink where it is 1."""
    return torch.lerp(ground, ink, x)


def draw_weights(count: int, beta: float) -> Tensor:
    """Draw weights (2, N, 1, 1, 1) of images and textures, as PixMix does.

    Half of them lie between the image (1, 0) and the texture (0, 1), half beyond the image.
    """
    near = torch.distributions.Beta(beta, 1.0)  # close to 1 for a large beta
    far = torch.distributions.Beta(1.0, beta)
    between = torch.stack([near.sample((count,)), far.sample((count,))])
    beyond = torch.stack([1 + far.sample((count,)), -far.sample((count,))])
    return torch.where(torch.rand(count) < 0.5, between, beyond)[..., None, None, None]


def add(x: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """Add two images as signals around 1/2."""
    return (weights[0] * (2 * x - 1) + weights[1] * (2 * other - 1) + 1) / 2


def multiply(x: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """Multiply powers of two images; 1/2 is neutral."""
    return (2 * x).clamp_min(FLOOR) ** weights[0] * (2 * other).clamp_min(FLOOR) ** weights[1] / 2


def _select(changed: Tensor, x: Tensor, share: float) -> Tensor:
    if share == 1:
        return changed
    selected = (torch.rand(len(x), 1, 1, 1) < share).to(x.device)
    return torch.where(selected, changed, x)
