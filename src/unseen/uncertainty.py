"""How far a domain is from the source, from one pass, and how far is too far.

A method gives F numbers per sample (the heads' sigma per channel); their mean over a domain, compared with the source's,
is its score. Held-out source samples tell how large that score gets by chance in a batch of n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.errors import UnseenError

RESAMPLES = 2000  # enough to place a 1 % quantile to about a fifth of its tail


def relative_deviation(mean: Tensor, source_mean: Tensor) -> Tensor:
    """mean over features of |sigma(T) - sigma(S)| / sigma(S): (..., F) -> (...)."""
    return ((mean - source_mean).abs() / source_mean).mean(-1)


def lack_of_confidence(logits: Tensor) -> Tensor:
    """1 - the highest class probability, averaged over pixels if there are any: (N, C, ...) -> (N, 1)."""
    return (1 - logits.softmax(1).amax(1)).reshape(len(logits), -1).mean(1, keepdim=True)


@dataclass
class SourceReference:
    """What a trained model remembers of its source: the mean of its score features, and held-out samples of them."""

    mean: Tensor  # (F,), over training samples
    held_out: Tensor  # (N, F)

    def threshold(self, score: Callable[[Tensor], Tensor], n: int, false_alarm_rate: float) -> float:
        """The score that a batch of n fresh source samples exceeds with at most that chance."""
        if not 0 < false_alarm_rate < 1:
            raise UnseenError(f"the false-alarm rate must lie between 0 and 1, not {false_alarm_rate}")
        if n < 1:
            raise UnseenError("a score needs at least one sample")
        return float(torch.quantile(self.chance_scores(score, n), 1 - false_alarm_rate, interpolation="higher"))

    def chance_scores(self, score: Callable[[Tensor], Tensor], n: int) -> Tensor:
        """Scores of resampled held-out batches of n.

        A fresh batch scatters around the true source, the held-out samples around it too: both errors count, hence the
        smaller effective size 1 / (1/n + 1/N).
        """
        total = len(self.held_out)
        size = max(1, round(n * total / (n + total)))
        generator = torch.Generator().manual_seed(0)
        picks = torch.randint(total, (RESAMPLES, size), generator=generator)
        held_out = self.held_out.double().cpu()
        means = torch.stack([held_out[pick].mean(0) for pick in picks])
        return score(means.to(self.mean))
