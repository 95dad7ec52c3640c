"""How far a domain is from the source, from one pass, and how far is too far.

A method gives F numbers per sample (the heads' sigma per channel); their mean over a domain, compared with the source's,
is its score. Held-out source samples tell how large that score gets by chance in a batch of n.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unseen.checks import check_fraction
from unseen.errors import UnseenError

log = logging.getLogger("unseen")

RESAMPLES = 2000  # enough to place a 1 % quantile to about a fifth of its tail
INTERVAL_RESAMPLES = 1000  # enough for the ends of a 95 % interval
UNSEEN = (
    3  # the rule of three: N samples leave room, at 95 %, for 3 / N of what none of them has shown
)
RIDGE = 0.1  # of a sample's own weight: with 48 features anything from 0.01 to 1 gave the same order of shifts
LEAST = 1e-6  # of the mean squared move: a feature that noise hardly moves has no useful logarithm below that
MARGIN = 4.0  # beyond the source's own range of log squared moves: seven times as far
PART = 4_000_000  # numbers of a table of resamples that are in memory at a time


def relative_deviation(mean: Tensor, source_mean: Tensor) -> Tensor:
    """mean over features of |sigma(T) - sigma(S)| / sigma(S): (..., F) -> (...)."""
    least = torch.finfo(
        source_mean.dtype
    ).tiny  # a sigma may round to 0: where it does so here and there, nothing deviates
    return ((mean - source_mean).abs() / source_mean.clamp_min(least)).mean(-1)


@dataclass(frozen=True)
class EmbeddingShiftPredictor:
    """Foretells from a sample's embedding z how far the learned noise moves each feature of it, without drawing any.

    log of the mean of (z+ - z)^2 over draws = z @ weight + bias, by ridge regression on the source.
    """

    weight: Tensor  # (F, F)
    bias: Tensor  # (F,)
    low: Tensor  # (F,): what the source itself shows, and a margin, so that no embedding, however strange, gives infinity
    high: Tensor  # (F,)

    def __call__(self, z: Tensor) -> Tensor:
        """How far, (N, F) -> (N, F)."""
        log = z @ self.weight.to(z) + self.bias.to(z)
        return (0.5 * log.clamp(self.low.to(z), self.high.to(z))).exp()

    @classmethod
    def fit(cls, z: Tensor, squared: Tensor) -> EmbeddingShiftPredictor:
        """From embeddings of the source, (N, F), and how far, squared, noise moved each feature of them."""
        z, squared = z.double(), squared.double()
        if len(z) < 2 or not (z.isfinite().all() and squared.isfinite().all()):
            raise UnseenError(
                "to read the score at the embedding takes two samples of the source or more, all finite"
            )
        log = squared.clamp_min(
            LEAST * squared.mean().clamp_min(torch.finfo(torch.float32).tiny)
        ).log()
        centre, spread = z.mean(0), z.std(0)
        spread = torch.where(spread > 0, spread, 1.0)
        x = (z - centre) / spread
        slope = torch.linalg.solve(
            x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype),
            x.T @ (log - log.mean(0)),
        )
        weight = slope / spread[:, None]
        bias = log.mean(0) - centre @ weight
        shown = z @ weight + bias
        return cls(
            *(t.float() for t in (weight, bias, shown.amin(0) - MARGIN, shown.amax(0) + MARGIN))
        )


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the class probabilities in nats, (N, C, ...) -> (N, ...)."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def lack_of_confidence(logits: Tensor) -> Tensor:
    """1 - the highest class probability, averaged over pixels if there are any: (N, C, ...) -> (N, 1)."""
    return (1 - logits.softmax(1).amax(1)).reshape(len(logits), -1).mean(1, keepdim=True)


def bootstrap_interval(
    features: Tensor,
    score: Callable[[Tensor], Tensor],
    level: float = 0.95,
    resamples: int = INTERVAL_RESAMPLES,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Where the score of so many samples of the same domain lies on average, from score features (N, F) of N of them.

    Resampled means scatter twice, around the samples that scatter around their domain, which lifts a score made of absolute
    deviations; the resampled scores are therefore moved so that their mean is the score itself.
    """
    check_fraction("the level of an interval", level)
    scores = resampled_scores(features, score, resamples, generator)
    moved = scores + (float(score(features.mean(0))) - scores.mean())
    scores = (
        moved.clamp_min(0) if scores.min() >= 0 else moved
    )  # what is never negative is not so after the move either
    low, high = torch.quantile(
        scores, torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    ).tolist()
    return low, high


def resampled_scores(
    features: Tensor,
    score: Callable[[Tensor], Tensor],
    resamples: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Scores of as many samples as there are, drawn again from them: (N, F) -> (resamples,)."""
    if features.dim() != 2 or len(features) == 0:
        raise UnseenError(
            f"an interval needs score features (N, F) of at least one sample, not {tuple(features.shape)}"
        )
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    return (
        score(resampled_means(features, len(features), resamples, generator).to(features))
        .double()
        .cpu()
    )


def resampled_means(
    features: Tensor, size: int, resamples: int, generator: torch.Generator
) -> Tensor:
    """Means of so many draws, with replacement, of `size` of the rows: (N, F) -> (resamples, F), in double precision."""
    rows = features.double().cpu()
    means = rows.new_empty(resamples, rows.shape[1])
    # How often each row is drawn, times the rows: a product of matrices is faster than gathering, and a part fits in memory.
    for part in means.split(max(1, PART // max(len(rows), size))):
        picks = torch.randint(len(rows), (len(part), size), generator=generator)
        times = rows.new_zeros(len(part), len(rows)).scatter_add_(
            1, picks, rows.new_ones(1).expand_as(picks)
        )
        part.copy_(times @ rows / size)
    return means


@dataclass
class SourceStatistics:
    """What a trained model remembers of its source: the mean of its score features, and held-out samples of them."""

    mean: Tensor  # (F,), over training samples
    held_out: (
        Tensor  # (N, F); empty where thresholds were made beforehand and the samples forgotten
    )
    thresholds: dict[tuple[str, int, float], float] = field(
        default_factory=dict, repr=False, compare=False
    )  # those made so far

    def threshold(
        self, score: Callable[[Tensor], Tensor], n: int, false_alarm_rate: float
    ) -> float:
        """The score that a batch of n fresh source samples exceeds with at most that chance."""
        check_fraction("the false-alarm rate", false_alarm_rate)
        if n < 1:
            raise UnseenError("a score needs at least one sample")
        if len(self.held_out) == 0:
            raise UnseenError(
                "no held-out source samples are left to make a threshold from: load the run again"
            )
        if (
            n == 1 and false_alarm_rate * len(self.held_out) < 1
        ):  # a monitor asks for many sizes: one remark is enough
            told = "a false-alarm rate of %g takes %d held-out source samples or more to be kept for single samples, here are %d"
            log.warning(told, false_alarm_rate, math.ceil(1 / false_alarm_rate), len(self.held_out))
        return float(
            torch.quantile(
                self.chance_scores(score, n), 1 - false_alarm_rate, interpolation="higher"
            )
        )

    def chance_scores(self, score: Callable[[Tensor], Tensor], n: int) -> Tensor:
        """Scores of resampled held-out batches of n.

        A fresh batch scatters around the true source, the held-out samples around it too: both errors count, hence the
        smaller effective size 1 / (1/n + 1/N). What the held-out samples have not shown yet counts as three samples more, as
        far out as the furthest: without them a score with a long tail, such as a sure model's doubt, alarms too often.
        """
        total = len(self.held_out)
        size = max(1, round(n * total / (n + total)))
        furthest = self.held_out[score(self.held_out.to(self.mean)).argmax()]
        rows = torch.cat([self.held_out, furthest.expand(UNSEEN, -1)])
        means = resampled_means(rows, size, RESAMPLES, torch.Generator().manual_seed(0))
        return score(means.to(self.mean))
