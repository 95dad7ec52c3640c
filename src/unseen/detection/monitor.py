"""A stream of batches, monitored in constant memory.

Every batch has two scores: its own, and that of an exponentially forgetting mean over the batches
so far, which detects a drift too small for one batch to show. With S, W, V the decayed sums of
features, weights and squared weights of a batch of n samples,

    S <- d S + sum of features,   W <- d W + n,   V <- d^2 V + n,
    mean = S / W,   effective size = W^2 / V,

and the threshold of the mean is that of its effective size.
"""

from __future__ import annotations

import importlib
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseen.checks import check_fraction, check_int, check_path, check_type
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.chunks import pieces_of
from unseen.detection.detector import Detector, detector_of
from unseen.detection.legacy import warn
from unseen.detection.monitor_file import MonitorState, read_monitor, write_monitor
from unseen.detection.one_pass import Moments
from unseen.detection.verdict import TOLERANCE, outcome
from unseen.errors import SampleError, UnseenError
from unseen.functional.stream import Reading as Reading
from unseen.functional.stream import StreamSummary as StreamSummary
from unseen.functional.stream import tabulated_size
from unseen.functional.stream import threshold_sizes as threshold_sizes
from unseen.nn.inputs import inputs


class DomainMonitor:
    """Watches unlabelled batches: `update(x)` scores a batch, `compute()` sums up the stream.

    A source batch raises an alarm at a rate of at most `false_alarm_rate`: half of it for the
    batch's own score, half for the forgetting mean. Thresholds are made once, from the detector's
    held-out samples; the monitor keeps no samples.

    Args:
        net: a calibrated method, or a calibrated detector.
        batch: the usual batch size; others are accepted.
        memory: length of the forgetting mean, in batches.
        history: number of readings to keep.
        estimator: an accuracy estimator of the method; every reading then has a verdict.
        tolerance: loss of accuracy against the source that is still fine.
    """

    def __init__(
        self,
        net: Any,
        *,
        batch: int = 64,
        false_alarm_rate: float = 0.01,
        memory: int = 20,
        history: int = 1000,
        estimator: AccuracyEstimator | None = None,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.detector = detector_of(net)
        self.tolerance = check_fraction("tolerance", tolerance, zero=True)
        self.estimator = _checked(estimator, self.detector)
        statistics = self.detector.calibrated()
        check_fraction("the false-alarm rate", false_alarm_rate)
        self.decay = 1 - 1 / check_int("memory", memory, 1)
        self.false_alarm_rate = false_alarm_rate
        self.history: deque[Reading] = deque(maxlen=check_int("history", history, 1))
        self.thresholds = {
            size: statistics.threshold(self.detector.reduce, size, false_alarm_rate / 2)
            for size in threshold_sizes(check_int("batch", batch, 1), self.decay)
        }
        self.reset()

    @property
    def net(self) -> Any:
        """The monitored method."""
        return self.detector.net

    def reset(self) -> None:
        """Forget the stream so far."""
        features = len(self.detector.calibrated().mean)
        self.seen = self.alarms = self.samples = 0
        self._total = torch.zeros(features, dtype=torch.float64)  # sum of all features
        self._sum = torch.zeros(features, dtype=torch.float64)  # S
        self._weight = self._squares = 0.0  # W, V
        self._moments: dict[str, Moments] = {}  # of every signal of the estimator
        self.history.clear()

    def update(self, x: Any) -> Reading:
        """Score the next batch and add it to the stream."""
        n = len(inputs(x)[0])
        if n == 0:
            raise UnseenError("a batch of the stream is empty: it needs at least one sample")
        try:
            features, moments = self._look(x)
        except SampleError as error:
            raise UnseenError(
                f"batch {self.seen + 1} of the stream is not finite, {error}; the batch was not "
                "counted, the monitor can continue"
            ) from None
        if not features.isfinite().all():
            raise UnseenError(
                f"batch {self.seen + 1} of the stream has scores that are not finite: look for NaN "
                "in it; the batch was not counted, the monitor can continue"
            )
        self._judge(moments, False)  # raises, before anything is counted, if it cannot be judged
        total = features.sum(0)
        self._total += total
        self._sum = self.decay * self._sum + total
        self._weight = self.decay * self._weight + n
        self._squares = self.decay**2 * self._squares + n
        self.seen += 1
        self.samples += n
        score, threshold = self._score(total / n), self.threshold(n)
        slow, slow_threshold = self._slow()
        alarms = score > threshold, slow > slow_threshold
        self._moments = _merged(self._moments, moments)
        judged = self._judge(moments, any(alarms))
        scores = (self.seen, n, score, threshold, slow, slow_threshold)
        reading = Reading(*scores, *alarms, **judged)
        self.alarms += reading.alarm
        self.history.append(reading)
        return reading

    def compute(self) -> StreamSummary:
        """Return the scores of all samples and of the forgetting mean, with their thresholds."""
        if self.samples == 0:
            raise UnseenError("the monitor has seen no batch yet: call update(x) first")
        score, threshold = self._score(self._total / self.samples), self.threshold(self.samples)
        slow = self._slow()
        counted = next(iter(self._moments.values())).n if self._moments else 0
        # A stream continued from a file without moments is not judged as a whole.
        moments = self._moments if counted == self.samples else {}
        judged = self._judge(moments, score > threshold or slow[0] > slow[1])
        counts = self.seen, self.samples, self.alarms
        return StreamSummary(*counts, score, threshold, *slow, **judged)

    def _look(self, x: Any) -> tuple[Tensor, dict[str, Moments]]:
        """Return the features of a batch, and the moments of every signal, from one pass."""
        if self.estimator is None:
            looks = pieces_of(x, self.detector.look)
            return torch.cat([look.features.double().cpu() for look in looks]), {}
        one_pass = self.estimator.one_pass
        observe = partial(one_pass.observe, own=self.detector)
        seen = one_pass.join([*pieces_of(inputs(x), observe)])
        assert seen.own is not None
        return seen.own.double(), seen.moments

    def _judge(self, moments: dict[str, Moments], shifted: bool) -> dict[str, Any]:
        if self.estimator is None or not moments:
            return {}
        estimate = self.estimator.estimate_moments(moments)
        found = outcome(shifted, estimate, self.estimator, self.tolerance, self.false_alarm_rate)
        return {
            "verdict": found,
            "predicted_accuracy": estimate.accuracy,
            "interval": (estimate.low, estimate.high),
        }

    def merge(self, other: DomainMonitor) -> None:
        """Add the stream of another monitor of the same detector and settings.

        Batches, samples, alarms and the mean over all samples are sums: they equal those of one
        monitor that has seen both streams. The forgetting mean treats the streams as parallel,
        aligned at their ends: if both are equally long, it equals that of one monitor whose k-th
        batch is the union of both k-th batches. Readings are appended with their own positions.
        """
        if not isinstance(other, DomainMonitor):
            raise UnseenError(f"a monitor merges with another DomainMonitor, not {other!r}")
        if other is self:
            raise UnseenError("a monitor cannot merge with itself: its batches would count twice")
        mean, other_mean = (m.detector.calibrated().mean.cpu() for m in (self, other))
        if (
            mean.shape != other_mean.shape
            or not torch.allclose(mean, other_mean)
            or (self.decay, self.thresholds) != (other.decay, other.thresholds)
        ):
            raise UnseenError(
                "monitors to merge must have the same detector, batch, memory and false_alarm_rate"
            )
        self._total += other._total
        self._sum = self._sum + other._sum
        self._weight += other._weight
        self._squares += other._squares
        self.seen += other.seen
        self.samples += other.samples
        self.alarms += other.alarms
        self._moments = _merged(self._moments, other._moments)
        self.history.extend(other.history)

    @property
    def effective_size(self) -> float:
        """Number of equally weighted samples with the variance of the forgetting mean."""
        return self._weight**2 / self._squares if self._squares else 0.0

    def threshold(self, n: float) -> float:
        """Return the threshold of the largest tabulated size up to n, which is never too low."""
        return self.thresholds[tabulated_size(list(self.thresholds), n)]

    def _score(self, mean: Tensor) -> float:
        return float(self.detector.reduce(mean.float()))

    def _slow(self) -> tuple[float, float]:
        if not self._weight:  # loaded from a 0.1 file that had seen no batch
            return 0.0, self.threshold(1)
        return self._score(self._sum / self._weight), self.threshold(self.effective_size)

    def save(self, path: str | Path) -> None:
        """Write the state of the stream to a .safetensors file; the model is saved elsewhere."""
        state = MonitorState(
            decay=self.decay,
            false_alarm_rate=self.false_alarm_rate,
            seen=self.seen,
            weight=self._weight,
            squares=self._squares,
            history=self.history.maxlen or 1,
            samples=self.samples,
            alarms=self.alarms,
            thresholds=self.thresholds,
            sum=self._sum,
            total=self._total,
            source_mean=self.detector.calibrated().mean.double().cpu(),
            moments=self._moments,
        )
        write_monitor(check_path("path", path), state)

    @classmethod
    def load(
        cls,
        path: str | Path,
        net: Any,
        *,
        estimator: AccuracyEstimator | None = None,
        tolerance: float = TOLERANCE,
    ) -> DomainMonitor:
        """Continue a saved stream with the same method; held-out samples are not needed.

        A file of 0.1 has no sums over all samples: `compute` then covers the batches from here on.
        """
        detector = detector_of(net)
        mean = detector.calibrated().mean.double().cpu()
        state = read_monitor(check_path("path", path), mean)
        monitor = cls.__new__(cls)
        monitor.detector, monitor.decay = detector, state.decay
        monitor.false_alarm_rate = state.false_alarm_rate
        monitor.estimator = _checked(estimator, detector)
        monitor.tolerance = check_fraction("tolerance", tolerance, zero=True)
        signals = None if monitor.estimator is None else set(monitor.estimator.one_pass.signals)
        if signals is not None and state.moments and set(state.moments) != signals:
            raise UnseenError(
                f"{path} was saved with the signals {', '.join(sorted(state.moments))}, not those "
                "of this estimator: make a new monitor"
            )
        monitor._moments = state.moments
        monitor.history = deque(maxlen=state.history)
        monitor.thresholds = state.thresholds
        monitor.seen, monitor.samples, monitor.alarms = state.seen, state.samples, state.alarms
        monitor._sum, monitor._total = state.sum, state.total
        monitor._weight, monitor._squares = state.weight, state.squares
        return monitor

    @classmethod
    def from_run(cls, folder: str | Path, task: Any, **settings: Any) -> DomainMonitor:
        """Deprecated: use unseen.experiments.monitor_run.open_monitor."""
        warn("DomainMonitor.from_run", "unseen.open_monitor")
        # By name, because experiments stand above this module.
        module = importlib.import_module("unseen.experiments.monitor_run")
        monitor: DomainMonitor = module.open_monitor(folder, task, **settings)
        return monitor


def _checked(estimator: AccuracyEstimator | None, detector: Detector) -> AccuracyEstimator | None:
    if estimator is None:
        return None
    check_type("estimator", estimator, AccuracyEstimator, "an AccuracyEstimator")
    if not estimator.matches(detector):
        raise UnseenError("this estimator was fitted with another method: fit it again")
    return estimator


def _merged(a: dict[str, Moments], b: dict[str, Moments]) -> dict[str, Moments]:
    """Return the moments of both; of one if the other has none."""
    if not a or not b:
        return dict(a or b)
    return {name: a[name].merge(b[name]) for name in a}
