"""SpecAugment: masked bands and frames of spectrograms (Park et al., Interspeech 2019)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from unseen.augmentations.settings import NotNegativeInt, Probability, augmentation
from unseen.nn.inputs import images, inputs


@augmentation
def specaugment(
    x: Tensor,
    bands: NotNegativeInt = 1,
    band_width: Probability = 0.25,
    frames: NotNegativeInt = 1,
    frame_width: Probability = 0.25,
    fill: Literal["mean", "zero"] = "mean",
) -> Tensor:
    """Mask bands and frames of each spectrogram (N, C, bands, frames).

    Args:
        bands: Number of masks over bands.
        band_width: Largest width of such a mask, as a fraction of all bands; widths are uniform.
        frames: Number of masks over time.
        frame_width: Largest width of such a mask, as a fraction of all frames.
        fill: The mean of the spectrogram, or zero, silence.
    """
    x = images(inputs(x), "specaugment")
    masked = torch.zeros(x.shape[0], 1, *x.shape[2:], dtype=torch.bool)
    for axis, number, width in ((2, bands, band_width), (3, frames, frame_width)):
        for _ in range(number):
            masked |= draw_mask(len(x), x.shape[axis], width).unflatten(
                1, (1, -1, 1) if axis == 2 else (1, 1, -1)
            )
    level = x.mean((1, 2, 3), keepdim=True) if fill == "mean" else x.new_zeros(())
    return torch.where(masked.to(x.device), level, x)


def draw_mask(count: int, size: int, width: float) -> Tensor:
    """Draw one interval per sample: the width from 0 to `width` of the size, then its place."""
    longest = round(width * size)
    lengths = torch.randint(longest + 1, (count,))
    starts = (torch.rand(count) * (size - lengths + 1)).long()
    place = torch.arange(size)
    return (place >= starts[:, None]) & (place < (starts + lengths)[:, None])
