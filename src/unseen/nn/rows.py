"""Layout of the batch dimension in a perturbed forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowLayout:
    """Segments of the batch at one point of a pass: [clean | draws | mixed].

    The clean segment has B rows. The other two have K * B rows, draw after draw.
    """

    batch: int  # B
    draws: int  # K
    has_clean: bool = True
    has_draws: bool = False
    has_mixed: bool = False

    @property
    def clean(self) -> slice:
        return slice(0, self.batch)

    @property
    def perturbed(self) -> slice:
        return self._segment(self.batch * self.has_clean)

    @property
    def mixed(self) -> slice:
        return self._segment(self.unmixed.stop)

    @property
    def unmixed(self) -> slice:
        """Rows of the clean segment and of the draws."""
        return slice(0, self.batch * (self.has_clean + self.draws * self.has_draws))

    @property
    def total(self) -> int:
        return self.batch * (self.has_clean + self.draws * (self.has_draws + self.has_mixed))

    def _segment(self, start: int) -> slice:
        return slice(start, start + self.batch * self.draws)


def fold(t: Tensor, times: int) -> Tensor:
    """Repeat a batch: (B, ...) -> (times * B, ...)."""
    return torch.cat([t] * times)  # keeps channels_last, unlike expand and flatten
