"""A stream watched batch by batch, in constant memory: is this batch off, and have the last ones drifted?

Two scores of every batch: its own, and that of an exponentially forgetting mean over the batches so far, which sees a drift
too slow for one batch to show. With S, W, V the decayed sums of features, weights and squared weights,

    S <- d S + sum of the batch's features,   W <- d W + n,   V <- d^2 V + n,   mean = S / W,   effective size = W^2 / V,

and the threshold of the mean is the one of its effective size.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseen.api import NO_STATISTICS, Method, Task, inputs
from unseen.checks import check_fraction, check_int
from unseen.detection.source_statistics import SourceStatistics
from unseen.errors import UnseenError
from unseen.nn.tensor_files import read_tensors, write_tensors
from unseen.tasks import task_named
from unseen.training.run import Run

NOT_A_METHOD = "a monitor needs a trained method, not {}: wrap a model, unseen.ERM(model)"
SIZE_STEP = 1.5  # from one size that has a threshold to the next


@dataclass(frozen=True)
class Reading:
    """What a monitor says of one batch."""

    batch: int  # its place in the stream, from 1
    n: int
    score: float
    threshold: float
    slow_score: float  # of the forgetting mean over the batches so far
    slow_threshold: float
    batch_alarm: bool
    slow_alarm: bool

    @property
    def alarm(self) -> bool:
        return self.batch_alarm or self.slow_alarm


class DomainMonitor:
    """Give it batches as they come, without labels: `update(x)` says how far they are from the source and whether to alarm.

    A batch of the source alarms with a chance of at most `false_alarm_rate`, half of it for the batch's own score and half for
    the mean over about the last `memory` batches. `batch` is the usual size; others are taken too. Thresholds are made here,
    once, from the method's held-out samples: the monitor keeps none of those, and only the last `history` readings.
    """

    def __init__(
        self,
        net: Method,
        *,
        batch: int = 64,
        false_alarm_rate: float = 0.01,
        memory: int = 20,
        history: int = 1000,
    ) -> None:
        if not isinstance(net, Method):
            raise UnseenError(NOT_A_METHOD.format(type(net).__name__))
        if net.reference is None:
            raise UnseenError(NO_STATISTICS)
        check_fraction("the false-alarm rate", false_alarm_rate)
        self.net = net
        self.decay = 1 - 1 / check_int("memory", memory, 1)
        self.false_alarm_rate = false_alarm_rate
        self.history: deque[Reading] = deque(maxlen=check_int("history", history, 1))
        sizes = threshold_sizes(check_int("batch", batch, 1), self.decay)
        self.thresholds = {
            size: net.reference.threshold(net.score, size, false_alarm_rate / 2) for size in sizes
        }
        self.reset()

    @classmethod
    def from_run(
        cls, folder: str | Path, task: Task | str, *, device: str = "auto", **settings: Any
    ) -> DomainMonitor:
        """A monitor of a finished run; the held-out samples that came with it are forgotten."""
        net = Run(folder).load(task_named(task) if isinstance(task, str) else task, device)
        monitor = cls(net, **settings)
        assert net.reference is not None
        net.reference = SourceStatistics(net.reference.mean, net.reference.held_out[:0].clone())
        return monitor

    def reset(self) -> None:
        """Forget the stream so far."""
        self.seen = 0
        self._sum: Tensor | None = None  # S, (F,)
        self._weight = self._squares = 0.0  # W, V
        self.history.clear()

    def update(self, x: Any) -> Reading:
        """Score the next batch and remember it in the slow mean."""
        n = len(inputs(x)[0])
        if n == 0:
            raise UnseenError("a batch of the stream is empty: it needs at least one sample")
        features = self.net.score_features(x).double().cpu()
        if not features.isfinite().all():
            raise UnseenError(
                f"batch {self.seen + 1} of the stream has scores that are not finite: look for NaN in it; "
                "it was not counted, the monitor can go on"
            )
        total = features.sum(0)
        self._sum = total if self._sum is None else self.decay * self._sum + total
        self._weight = self.decay * self._weight + n
        self._squares = self.decay**2 * self._squares + n
        self.seen += 1
        score, threshold = self._score(total / n), self.threshold(n)
        slow, slow_threshold = (
            self._score(self._sum / self._weight),
            self.threshold(self.effective_size),
        )
        reading = Reading(
            self.seen,
            n,
            score,
            threshold,
            slow,
            slow_threshold,
            score > threshold,
            slow > slow_threshold,
        )
        self.history.append(reading)
        return reading

    @property
    def effective_size(self) -> float:
        """How many samples the slow mean is worth."""
        return self._weight**2 / self._squares if self._squares else 0.0

    def threshold(self, n: float) -> float:
        """The threshold of n samples: of the largest size not above it that has one, which is never too low."""
        sizes = list(self.thresholds)
        return self.thresholds[sizes[max(0, bisect.bisect_right(sizes, n + 1e-6) - 1)]]

    def _score(self, mean: Tensor) -> float:
        return float(self.net.score(mean.float()))

    # ------------------------------------------------------------------------------------------------ on disk

    def save(self, path: str | Path) -> None:
        """Write where the stream stands and the thresholds to a .safetensors file; the model is saved with its run."""
        assert self.net.reference is not None
        numbers = [
            self.decay,
            self.false_alarm_rate,
            self.seen,
            self._weight,
            self._squares,
            self.history.maxlen or 1,
        ]
        total = torch.zeros_like(self.net.reference.mean) if self._sum is None else self._sum
        write_tensors(
            Path(path),
            {
                "numbers": torch.tensor(numbers, dtype=torch.float64),
                "sizes": torch.tensor(list(self.thresholds)),
                "thresholds": torch.tensor(list(self.thresholds.values()), dtype=torch.float64),
                "sum": total.double(),
                "source_mean": self.net.reference.mean.double(),
            },
        )

    @classmethod
    def load(cls, path: str | Path, net: Method) -> DomainMonitor:
        """Go on where `save` stood, with the same method; its held-out samples are not needed."""
        if not isinstance(net, Method):
            raise UnseenError(NOT_A_METHOD.format(type(net).__name__))
        saved = read_tensors(Path(path))
        if set(saved) != {"numbers", "sizes", "thresholds", "sum", "source_mean"} or saved[
            "numbers"
        ].shape != (6,):
            raise UnseenError(f"{path} is not a saved monitor: it holds {', '.join(saved)}")
        if net.reference is None:
            raise UnseenError(NO_STATISTICS)
        mean = net.reference.mean.double().cpu()
        if saved["source_mean"].shape != mean.shape or not torch.allclose(
            saved["source_mean"], mean
        ):
            raise UnseenError(
                f"{path} was saved with another method: its source statistics are not those of this one"
            )
        decay, rate, seen, weight, squares, history = saved["numbers"].tolist()
        sizes = saved["sizes"].tolist()
        sound = all(t.isfinite().all() for t in saved.values()) and saved["sum"].shape == mean.shape
        sound = (
            sound
            and saved["thresholds"].shape == saved["sizes"].shape == (len(sizes),)
            and sizes == sorted(set(sizes))
        )
        if (
            not sound
            or not sizes
            or not (
                0 <= decay < 1 and 0 < rate < 1 and min(seen, weight, squares) >= 0 and history >= 1
            )
        ):
            raise UnseenError(
                f"{path} is a spoilt monitor: its numbers are not those of one; make it anew"
            )
        monitor = cls.__new__(cls)
        monitor.net, monitor.decay, monitor.false_alarm_rate = net, decay, rate
        monitor.history = deque(maxlen=int(history))
        monitor.thresholds = dict(zip(sizes, saved["thresholds"].tolist(), strict=True))
        monitor.seen, monitor._weight, monitor._squares = int(seen), weight, squares
        monitor._sum = saved["sum"] if seen else None
        return monitor


def threshold_sizes(batch: int, decay: float) -> list[int]:
    """The sizes that get a threshold: steps from 1 up to what the slow mean is worth at last, and the batch itself."""
    last = math.floor(batch * (1 + decay) / (1 - decay))
    steps = [1]
    while steps[-1] < last:
        steps.append(max(steps[-1] + 1, math.floor(steps[-1] * SIZE_STEP)))
    return sorted({size for size in steps if size < last} | {batch, last})
