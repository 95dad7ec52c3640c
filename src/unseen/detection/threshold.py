"""Alarm threshold and p-value: scores of resampled held-out source batches, with confidence.

A threshold from N held-out samples depends on which samples they are. The held-out samples are
therefore resampled too: each resample gives a threshold, and the CONFIDENCE quantile of them is
taken. Of many calibrations, at most about 1 - CONFIDENCE then have more false alarms than stated.
"""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from unseen.checks import check_fraction
from unseen.errors import UnseenError
from unseen.functional.bootstrap import Reduce, resampled_means
from unseen.functional.verdict import LARGEST_BATCH

log = logging.getLogger("unseen")

RESAMPLES = 2000  # 20 of them lie above a 1 % threshold: its rate is known to about a fifth
CALIBRATIONS = 20  # resamples of the held-out samples themselves
CONFIDENCE = 0.95
# Up to this size a batch shows single samples; beyond it, its mean is nearly normal, and another
# calibration only moves the mean.
SMALL = 8
# Rule of three: N samples leave room, at 95 %, for a fraction 3 / N that none of them has shown.
UNSEEN_SAMPLES = 3


def alarm_threshold(held_out: Tensor, reduce: Reduce, n: int, false_alarm_rate: float) -> float:
    """Return the threshold that fresh source batches exceed with at most that probability.

    It holds for CONFIDENCE of all calibrations.

    Args:
        held_out: features of source samples that were not trained on, (N, F).
        reduce: maps mean features to a score, (..., F) -> (...).
        n: samples per batch.
    """
    check_fraction("the false-alarm rate", false_alarm_rate)
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
    ends = torch.quantile(scores, 1 - false_alarm_rate, dim=1, interpolation="higher")
    return float(torch.quantile(ends, CONFIDENCE))


def p_value(scores: Tensor, score: float) -> float:
    """Return the probability of a score at least this high on the source, from `null_scores`.

    Like the threshold it is the CONFIDENCE quantile over calibrations; it is never 0.
    """
    above = (scores >= score).sum(1).double()
    return float(torch.quantile((above + 1) / (scores.shape[1] + 1), CONFIDENCE))


def null_scores(held_out: Tensor, reduce: Reduce, n: int) -> Tensor:
    """Return the scores of source batches of n, (CALIBRATIONS, RESAMPLES).

    A row holds the batches of one resample of the held-out samples. The tail that the held-out
    samples have not shown is represented by three copies of the furthest one; without them a score
    with a long tail, such as the uncertainty of a confident model, alarms too often.
    """
    if n < 1:
        raise UnseenError("a score needs at least one sample")
    if len(held_out) == 0:
        raise UnseenError(
            "the held-out source samples were dropped, so no new threshold can be made: "
            "load the run again"
        )
    n = min(n, LARGEST_BATCH)
    furthest = held_out[reduce(held_out).argmax()]
    rows = torch.cat([held_out, furthest.expand(UNSEEN_SAMPLES, -1)])
    generator = torch.Generator().manual_seed(0)
    if n <= SMALL:
        return _small_batches(rows, len(held_out), reduce, n, generator)
    batches = resampled_means(rows, n, RESAMPLES, generator)
    centre = held_out.double().mean(0)
    moved = resampled_means(held_out, len(held_out), CALIBRATIONS, generator) - centre
    scores = [reduce((batches + offset).to(held_out)) for offset in moved]
    return torch.stack(scores)


def _small_batches(
    rows: Tensor, total: int, reduce: Reduce, n: int, generator: torch.Generator
) -> Tensor:
    """Resample the held-out samples, then batches from the resample."""
    scores = []
    for _ in range(CALIBRATIONS):
        resample = torch.randint(total, (total,), generator=generator)
        # The unseen tail stays in every resample.
        resample = torch.cat([resample, torch.arange(total, len(rows))])
        index = torch.randint(len(resample), (RESAMPLES, n), generator=generator)
        means = torch.zeros(RESAMPLES, rows.shape[1], dtype=rows.dtype)
        for column in resample[index].unbind(1):
            means += rows[column]
        scores.append(reduce(means / n))
    return torch.stack(scores)
