"""How low the estimated accuracy of fresh source batches falls by chance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from unseen.detection.confidence_transport import ConfidenceTransport
from unseen.detection.detector import Detector
from unseen.detection.one_pass import Observation
from unseen.functional.accuracy_curve import Floats
from unseen.functional.accuracy_model import RATES as RATES
from unseen.functional.accuracy_model import SIZES as SIZES
from unseen.functional.accuracy_model import Combined
from unseen.functional.accuracy_model import NullAccuracy as NullAccuracy
from unseen.functional.bootstrap import resampled_means

RESAMPLES = 1000
ROWS = 1000  # held-out samples that are resampled
SIMULATED = 200  # batches of each small size
SMALL = 64  # smaller batches are simulated sample by sample
NORMAL_95 = 1.645  # the 95 % quantile of the standard normal distribution


def fit_null_accuracy(
    combined: Combined, signals: Mapping[str, Detector], source: Observation
) -> NullAccuracy:
    """Resample the held-out source.

    The held-out samples are a sample themselves: their own error is subtracted at a confidence of
    95 %, so that most calibrations keep the stated rate.
    """
    rows = {name: source.features[name][:ROWS] for name in combined.names}
    own = combined.accuracies(_resampled(signals, rows, len(source.logits[:ROWS])))
    table = []
    for size in SIZES:
        if size * source.logits.shape[1] < SMALL:
            scores = _simulated(signals, rows, source.logits[:ROWS], size)
        else:
            scores = _resampled(signals, rows, size)
        accuracies = combined.accuracies(scores)
        table.append(np.quantile(accuracies, RATES) - source.accuracy - NORMAL_95 * own.std())
    return NullAccuracy(np.minimum(np.array(table), 0))


def _simulated(
    signals: Mapping[str, Detector], rows: Mapping[str, Tensor], logits: Tensor, size: int
) -> Floats:
    """Return the scores of every signal for small batches, as `verdict` computes them."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(len(logits), (SIMULATED, size), generator=generator)
    scores = []
    for name, features in rows.items():
        detector, values = signals[name], features.double().cpu()
        if isinstance(detector, ConfidenceTransport):
            batches = torch.stack(
                [detector.features_of(logits[chosen].transpose(1, 2), None) for chosen in index]
            ).double()
            means, variances = batches.mean(1), batches.var(1, correction=0)
        else:
            means = torch.stack([values[chosen].mean(0) for chosen in index])
            variances = torch.stack([values[chosen].var(0, correction=0) for chosen in index])
        scores.append(detector.reduce_mean(means, variances / max(1, size - 1)).numpy())
    return np.stack(scores, -1)


def _resampled(signals: Mapping[str, Detector], rows: Mapping[str, Tensor], size: int) -> Floats:
    """Return the scores of every signal for resampled batches of a size, (RESAMPLES, S)."""
    scores = []
    for name, features in rows.items():
        # The same draws for every signal: one seed.
        generator = torch.Generator().manual_seed(0)
        means = resampled_means(features, size, RESAMPLES, generator)
        variance = features.double().var(0, correction=0) / size
        scores.append(signals[name].reduce_mean(means, variance).numpy())
    return np.stack(scores, -1)
