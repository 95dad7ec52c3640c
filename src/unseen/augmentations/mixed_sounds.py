"""Mixup of sounds: another clip in the background, added as powers, as sounds add.

Log-mel spectrograms must not be averaged as images are: the mean of two levels is that of no sound.
The power of a sum of two unrelated waveforms is the sum of their powers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unseen.augmentations.settings import Positive, Probability, augmentation
from unseen.nn.inputs import images, in_unit_range, inputs


@augmentation
def mixup(
    x: Tensor, alpha: Positive = 1.0, decibels: Positive = 120.0, share: Probability = 1.0
) -> Tensor:
    """Add the power of another clip of the batch to each log-mel spectrogram in 0..1.

    The clip keeps at least half of the weight, and therefore its label: any method and loss can be
    used. The method `mixup` mixes labels too.

    Args:
        alpha: Of Beta(alpha, alpha), from which the weight is drawn for each clip.
        decibels: Levels between 0 and 1 of the spectrograms; 120 in google_commands.
        share: Probability that a clip is changed.
    """
    x = in_unit_range(images(inputs(x), "mixup"), "mixup")
    weight = torch.distributions.Beta(alpha, alpha).sample((len(x),))
    weight = torch.maximum(weight, 1 - weight)
    weight = torch.where(torch.rand(len(x)) < share, weight, 1.0).to(x.device, x.dtype)
    partner = torch.randperm(len(x)).to(x.device)
    return add_powers(x, x[partner], weight[:, None, None, None], decibels)


def add_powers(x: Tensor, other: Tensor, weight: Tensor, decibels: float) -> Tensor:
    """Return the level of weight * power of x + (1 - weight) * power of the other."""
    unit = decibels / 10 * math.log(10)  # from levels to natural logarithms of power
    own = unit * x + weight.log()
    background = unit * other + (1 - weight).log()  # -inf at weight 1: silence
    return (torch.logaddexp(own, background) / unit).clamp(0, 1)
