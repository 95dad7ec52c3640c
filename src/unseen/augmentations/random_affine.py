"""Random affine maps: rotation, scale, shear and translation of every image."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.augmentations.settings import NotNegative, Positive, augmentation
from unseen.nn.inputs import images, inputs

Fill = Literal["border", "zeros", "reflection"]


@augmentation
def affine(
    x: Tensor,
    strength: NotNegative = 0.5,
    vary: bool = True,
    rotation: NotNegative = 30.0,
    scale: Positive = 1.5,
    shear: NotNegative = 0.3,
    translation: NotNegative = 0.15,
    fill: Fill = "border",
) -> Tensor:
    """Rotate, scale, shear and shift each image by amounts of its own.

    Args:
        strength: Factor of all amounts below; 1 draws them from their whole ranges.
        vary: Draw the strength of each image from U(0, strength).
        rotation: Largest angle in degrees, to either side.
        scale: Largest factor; sizes are log-uniform between 1 / scale and scale, for each axis.
        shear: Largest shift of a row, as a fraction of its distance from the centre.
        translation: Largest shift, as a fraction of the image's side.
        fill: What lies outside of the image.
    """
    x = images(inputs(x), "affine")
    count = len(x)
    amounts = strength * (torch.rand(count, 1) if vary else torch.ones(count, 1))
    drawn = amounts * (2 * torch.rand(count, 6) - 1)  # in -strength..strength
    maps = affine_maps(drawn, rotation, scale, shear, translation)
    return warp(x, maps.to(x.device, x.dtype), fill)


def affine_maps(
    drawn: Tensor, rotation: float, scale: float, shear: float, translation: float
) -> Tensor:
    """Return maps (N, 2, 3) from output to input, in units of half an image's side.

    `drawn` has the relative amounts (N, 6): angle, log-scale of both axes, shear, shift of both.
    """
    angle = drawn[:, 0] * math.radians(rotation)
    factor = torch.exp(-drawn[:, 1:3] * math.log(scale))  # a larger image reads closer points
    slope = drawn[:, 3] * shear
    cosine, sine = angle.cos(), angle.sin()
    # rotation @ shear @ scale, of points (x, y)
    columns = [
        torch.stack([cosine * factor[:, 0], sine * factor[:, 0]], 1),
        torch.stack([cosine * slope - sine, sine * slope + cosine], 1) * factor[:, 1:2],
        2 * translation * drawn[:, 4:6],
    ]
    return torch.stack(columns, dim=2)


def warp(x: Tensor, maps: Tensor, fill: Fill = "border") -> Tensor:
    """Sample images (N, C, H, W) at the points that the maps (N, 2, 3) give, bilinearly.

    Points are in pixels from the centre: a rotation keeps angles where H and W differ.
    """
    height, width = x.shape[2:]
    # affine_grid is in halves of each side: convert from halves of the shorter one
    unit = min(height, width)
    ratio = maps.new_tensor([width / unit, height / unit])
    linear = maps[:, :, :2] * ratio / ratio[:, None]
    theta = torch.cat([linear, maps[:, :, 2:]], dim=2)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode=fill, align_corners=False)
