"""Fewer samples for calibrations and accuracy estimators: for tests of what uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from unseen.detection import accuracy_points, null_accuracy
from unseen.detection.accuracy import AccuracyEstimator
from unseen.experiments import adapt, compare_scores, evaluate, run_estimator
from unseen.training import train

CALIBRATED_ON = (train, evaluate, adapt, compare_scores, run_estimator)


@contextmanager
def quick_calibration(samples: int) -> Iterator[None]:
    """Calibrate runs on this many samples."""
    with pytest.MonkeyPatch.context() as patch:
        for module in CALIBRATED_ON:
            patch.setattr(module, "MAX_SAMPLES", samples)
        yield


@contextmanager
def quick_estimates() -> Iterator[None]:
    """Fit accuracy estimators to few samples and blends; calibrate on few samples."""
    with pytest.MonkeyPatch.context() as patch, quick_calibration(64):
        patch.setitem(AccuracyEstimator.fit.__func__.__kwdefaults__, "samples", 12)
        patch.setattr(accuracy_points, "BLENDS", 8)
        patch.setattr(null_accuracy, "SIMULATED", 20)
        yield
