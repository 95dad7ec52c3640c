"""The contract of a detector. Read this first.

    detector = SigmaDetector(net).calibrate(train_loader, held_out_loader)
    detector.score(x)        # one score per sample
    detector.alarm(x, 0.01)  # do these samples come from another domain?

A detector computes F features per sample in one `look`. `reduce` turns features, or their mean over
a domain, into a score; higher is further from the source. To add one, write `look` in a file of its
own and add the class to registry.py.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from unseen.detection.sampling import sample_batches, stack_rows
from unseen.detection.source_statistics import SourceStatistics
from unseen.errors import UnseenError
from unseen.nn.batch import Batch
from unseen.nn.inputs import inputs

log = logging.getLogger("unseen")

NOT_CALIBRATED = (
    "no source statistics yet: train with unseen.fit, or call "
    "unseen.calibrate(net, train, held_out) or detector.calibrate(train, held_out)"
)
ENOUGH_HELD_OUT = 200  # from here on the stated rate of false alarms held in our tests

D = TypeVar("D", bound="Detector")


class ScoredModel(Protocol):
    """What a detector needs of a method."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> nn.Module: ...
    @property
    def sites(self) -> tuple[str, ...]: ...
    @property
    def embedding(self) -> str | None: ...
    def predict(self, x: Any) -> Tensor: ...


class Look(NamedTuple):
    """Predictions for a batch and the features that its score is computed from."""

    logits: Tensor  # (N, C) or (N, C, H, W)
    features: Tensor  # (N, F)


class Detector(ABC):
    """Scores how far samples are from the source. Write `look`; the rest has defaults."""

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    reads_learned_noise: ClassVar[bool] = False

    def __init__(self, net: ScoredModel) -> None:
        self.net = net
        self.statistics: SourceStatistics | None = None
        self._thresholds: dict[tuple[int, float], float] = {}

    # ---- what a detector writes

    @abstractmethod
    def look(self, x: Any) -> Look:
        """Predict and compute the features, in as few passes as possible, without gradients."""

    def reduce(self, features: Tensor) -> Tensor:
        """Return the score of features or of their mean, (..., F) -> (...)."""
        return features.mean(-1)

    def fit(self, source: Iterable[Batch]) -> None:  # noqa: B027 - most detectors need no fit
        """Fit the parameters of the score to labelled source batches."""

    @property
    def feature_count(self) -> int | None:
        """The number of features that `look` returns, if the model states it."""
        return None

    def options(self) -> dict[str, str]:
        """Return the constructor's keyword arguments, if there are any."""
        return {}

    def fitted_state(self) -> dict[str, Tensor]:
        """Return what `fit` has learned."""
        return {}

    def load_fitted_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `fitted_state`; `statistics` are already there."""
        if state:
            raise UnseenError(f"must hold mean and held_out, it also holds {', '.join(state)}")

    # ---- what every detector has

    @torch.no_grad()
    def calibrate(self: D, train: Iterable[Any], held_out: Iterable[Any] | None = None) -> D:
        """Fit to the source and take the statistics that thresholds are made from.

        Args:
            train: batches (x, y) of training data; it is iterated more than once.
            held_out: batches of source data that was not trained on. Without it the training data
                is used, and false alarms may be more frequent than stated.
        """
        self.fit(sample_batches(train))
        mean = self._collect(train).mean(0)
        # Reduced features may depend on the statistics, so thresholds of the old ones are dropped.
        self._set(SourceStatistics(mean, self._collect(train if held_out is None else held_out)))
        if held_out is None:
            log.warning(
                "no held-out source data: the alarm is calibrated on training data, "
                "false alarms may be more frequent than stated"
            )
        elif (samples := len(self.calibrated().held_out)) < ENOUGH_HELD_OUT:
            log.warning(
                "the alarm is calibrated on %d held-out source samples: below %d, false alarms may "
                "be more frequent than stated",
                samples,
                ENOUGH_HELD_OUT,
            )
        return self

    def calibrated(self) -> SourceStatistics:
        """Return the source statistics, or raise if there are none."""
        if self.statistics is None:
            raise UnseenError(NOT_CALIBRATED)
        return self.statistics

    @torch.no_grad()
    def score(self, x: Any) -> Tensor:
        """Return one score per sample, (N,)."""
        return self.reduce(self.look(x).features)

    @torch.no_grad()
    def predict_and_score(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return logits and one score per sample from the same look."""
        logits, features = self.look(x)
        return logits, self.reduce(features)

    def domain_score(self, x: Any) -> float:
        """Return one score for all of x, as samples of one domain."""
        if len(inputs(x)[0]) == 0:
            raise UnseenError("a domain score needs at least one sample, x is empty")
        return self.domain_score_of(self.look(x).features)

    def domain_score_of(self, features: Tensor) -> float:
        """Return the score of a domain from the features of its samples, (N, F)."""
        value = float(self.reduce(features.mean(0)))
        if not math.isfinite(value):
            raise UnseenError(
                f"the score of these samples is {value}: look for NaN in the inputs or the weights"
            )
        return value

    def threshold(self, n: int, false_alarm_rate: float = 0.01) -> float:
        """Return the score that fresh source batches of n exceed with at most that probability."""
        statistics, key = self.calibrated(), (n, false_alarm_rate)
        if key not in self._thresholds:
            self._thresholds[key] = statistics.threshold(self.reduce, n, false_alarm_rate)
        return self._thresholds[key]

    def alarm(self, x: Any, false_alarm_rate: float = 0.01) -> bool:
        """Return whether the samples are further from the source than chance explains."""
        return self.domain_score(x) > self.threshold(len(inputs(x)[0]), false_alarm_rate)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the source statistics and what `fit` has learned."""
        return {**self.calibrated().state_dict(), **self.fitted_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned; raise if a tensor is missing, misshapen or NaN."""
        statistics = SourceStatistics.from_state_dict(state)
        if self.feature_count not in (None, len(statistics.mean)):
            raise UnseenError(
                f"mean has {len(statistics.mean)} features, {self.name} of this model has "
                f"{self.feature_count}: calibrate the model again"
            )
        rest = {name: t for name, t in state.items() if name not in statistics.state_dict()}
        self._set(statistics)
        self.load_fitted_state(rest)

    def forget_held_out(self) -> None:
        """Drop the held-out samples; thresholds made so far stay."""
        statistics = self.calibrated()
        self.statistics = SourceStatistics(statistics.mean, statistics.held_out[:0].clone())

    def _set(self, statistics: SourceStatistics) -> None:
        self.statistics = statistics
        self._thresholds.clear()

    def _collect(self, loader: Iterable[Any]) -> Tensor:
        return stack_rows(lambda batch: self.look(batch.x).features, sample_batches(loader))


def detector_of(net: Any) -> Detector:
    """Return a detector itself, or the detector of a method."""
    detector = net if isinstance(net, Detector) else getattr(net, "detector", None)
    if not isinstance(detector, Detector):
        raise UnseenError(
            f"needs a trained method, not {type(net).__name__}: wrap a model, unseen.ERM(model)"
        )
    return detector
