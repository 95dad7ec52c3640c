"""What a calibrated detector keeps of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.detection.threshold import alarm_threshold, null_scores
from unseen.errors import UnseenError
from unseen.functional.bootstrap import Reduce


@dataclass
class SourceStatistics:
    """Mean of the score features over training samples, and the features of held-out samples."""

    mean: Tensor  # (F,)
    held_out: Tensor  # (N, F); empty once a monitor has made its thresholds

    def threshold(self, reduce: Reduce, n: int, false_alarm_rate: float) -> float:
        """Return the score that fresh source batches of n exceed with at most that probability."""
        return alarm_threshold(self.held_out.to(self.mean), reduce, n, false_alarm_rate)

    def null_scores(self, reduce: Reduce, n: int) -> Tensor:
        """Return scores of resampled held-out batches of n, a row for each calibration."""
        return null_scores(self.held_out.to(self.mean), reduce, n)

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "held_out": self.held_out}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> SourceStatistics:
        """Restore statistics; other tensors in `state` are ignored."""
        if not {"mean", "held_out"} <= set(state):
            raise UnseenError(f"must hold mean and held_out, it holds {', '.join(state)}")
        mean, held_out = state["mean"], state["held_out"]
        if mean.dim() != 1 or held_out.dim() != 2 or held_out.shape[1:] != mean.shape:
            raise UnseenError(
                f"mean must be (F,) and held_out (N, F), not {tuple(mean.shape)} and "
                f"{tuple(held_out.shape)}"
            )
        if not len(held_out):
            raise UnseenError(f"held_out must be (N, F) with N > 0, not {tuple(held_out.shape)}")
        if not (is_finite_float(mean) and is_finite_float(held_out)):
            raise UnseenError("holds numbers that are not finite floats: train the run again")
        return cls(mean, held_out)


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_finite_float(tensor: Tensor) -> bool:
    """Return whether a tensor read from a file holds finite floating-point numbers."""
    return tensor.dtype in FLOATS and bool(tensor.isfinite().all())
