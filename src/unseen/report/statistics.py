"""Means over seeds, confidence intervals, rank correlation and detection metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation (0 for a single value)."""
    sample = np.asarray(values, dtype=float)
    return float(sample.mean()), float(sample.std(ddof=1)) if len(sample) > 1 else 0.0


def confidence_half_width(differences: Sequence[float], level: float = 0.95) -> float | None:
    """Return half the width of Student's t confidence interval of the mean of paired differences.

    None for fewer than two differences.
    """
    from scipy.stats import t as student  # slow to import

    n = len(differences)
    if n < 2:
        return None
    _, std = mean_and_std(differences)
    return float(student.ppf((1 + level) / 2, n - 1)) * std / math.sqrt(n)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None if either side is constant."""
    from scipy.stats import spearmanr  # slow to import

    if len(a) < 2 or len(set(a)) < 2 or len(set(b)) < 2:
        return None
    return float(spearmanr(a, b).statistic)


def auroc(source: ArrayLike, target: ArrayLike) -> float:
    """Return the probability that a target sample scores above a source sample; ties count half."""
    from sklearn.metrics import roc_auc_score  # slow to import

    scores = np.concatenate([np.asarray(source), np.asarray(target)])
    is_target = np.arange(len(scores)) >= len(np.asarray(source))
    return float(roc_auc_score(is_target, scores))


def fpr_at_95(source: ArrayLike, target: ArrayLike) -> float:
    """Return the fraction of target samples below the threshold that accepts 95 % of the source."""
    threshold = np.quantile(np.asarray(source), 0.95, method="inverted_cdf")
    return float((np.asarray(target) <= threshold).mean())
