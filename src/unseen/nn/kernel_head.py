"""Head that predicts the distribution of a random kernel for each image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.functional.kernels import kernel_width
from unseen.functional.noise import Gaussian
from unseen.nn.heads import NoiseHead
from unseen.nn.precision import at_least_float32

MOST_CHANNELS = 16  # a kernel has a weight for every pair of channels
HIDDEN = 16
MU_LIMIT = 1.0  # mu lies in (-1, 1) and sigma in (0, 1)


class KernelHead(NoiseHead):
    """Predict mean and scale of a kernel from an image: a convolution, the mean over space, linear.

    The bounds of mu and sigma are smooth, so that an adversary that reaches them can return.
    """

    def __init__(self, site: nn.Module, name: str, channels: int, size: int) -> None:
        super().__init__()
        if channels > MOST_CHANNELS:
            raise UnseenError(
                f'noise.act="kernel" is for places of at most {MOST_CHANNELS} channels, "{name}" '
                f'has {channels}: name the input, as sites=["input"]'
            )
        like = next(site.parameters(), None)
        options: dict[str, Any] = {} if like is None else {"device": like.device}
        if like is not None and like.is_floating_point():
            options["dtype"] = like.dtype
        self.channels, self.size = channels, size
        self.axis, self.reads_output = -1, True
        self.width = kernel_width(channels, size)
        # Saved runs know the number of channels from the weight of `net`.
        self.net = nn.Conv2d(channels, HIDDEN, 3, stride=2, padding=1, **options)
        self.out = nn.Linear(HIDDEN, 2 * self.width, **options)

    def forward(self, x: Tensor) -> Gaussian:
        mu, logit = at_least_float32(self.out(self._read(x))).chunk(2, dim=1)
        return Gaussian(MU_LIMIT * torch.tanh(mu), torch.sigmoid(logit))

    def sigma(self, x: Tensor, every: int = 1) -> Tensor:
        """Return the scale only."""
        return self.forward(x).sigma

    def _read(self, x: Tensor) -> Tensor:
        return torch.relu(self.net(x)).mean((2, 3))
