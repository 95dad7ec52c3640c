"""Alarm threshold: a quantile of the scores of resampled held-out source batches."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from unseen.checks import check_fraction
from unseen.errors import UnseenError
from unseen.functional.bootstrap import Reduce, resampled_means

log = logging.getLogger("unseen")

RESAMPLES = 2000  # 20 of them lie above a 1 % threshold: its rate is known to about a fifth
# Rule of three: N samples leave room, at 95 %, for a fraction 3 / N that none of them has shown.
UNSEEN_SAMPLES = 3


def alarm_threshold(held_out: Tensor, reduce: Reduce, n: int, false_alarm_rate: float) -> float:
    """Return the threshold that fresh source batches exceed with at most that probability.

    Args:
        held_out: features of source samples that were not trained on, (N, F).
        reduce: maps mean features to a score, (..., F) -> (...).
        n: samples per batch.
    """
    check_fraction("the false-alarm rate", false_alarm_rate)
    if n < 1:
        raise UnseenError("a score needs at least one sample")
    if len(held_out) == 0:
        raise UnseenError(
            "the held-out source samples were dropped, so no new threshold can be made: "
            "load the run again"
        )
    # A monitor asks for many sizes: warn for single samples only.
    if n == 1 and false_alarm_rate * len(held_out) < 1:
        log.warning(
            "a false-alarm rate of %g for single samples needs at least %d held-out source "
            "samples, there are %d",
            false_alarm_rate,
            math.ceil(1 / false_alarm_rate),
            len(held_out),
        )
    scores = null_scores(held_out, reduce, n)
    return float(torch.quantile(scores, 1 - false_alarm_rate, interpolation="higher"))


def null_scores(held_out: Tensor, reduce: Reduce, n: int) -> Tensor:
    """Return the scores of resampled held-out batches of n, (RESAMPLES,).

    A fresh batch scatters around the true source, and so do the N held-out samples. Both errors
    count, hence the smaller effective size 1 / (1/n + 1/N). The tail that the held-out samples have
    not shown is represented by three copies of the furthest one; without them a score with a long
    tail, such as the uncertainty of a confident model, alarms too often.
    """
    total = len(held_out)
    size = max(1, round(n * total / (n + total)))
    furthest = held_out[reduce(held_out).argmax()]
    rows = torch.cat([held_out, furthest.expand(UNSEEN_SAMPLES, -1)])
    means = resampled_means(rows, size, RESAMPLES, torch.Generator().manual_seed(0))
    return reduce(means.to(held_out))
