"""The contract of a detector. Read this first.

    detector = SigmaDetector(net).calibrate(train_loader, held_out_loader)
    detector.score(x)        # one score per sample
    detector.alarm(x, 0.01)  # do these samples come from another domain?

A detector computes F features per sample while the model predicts. `reduce` turns features, or
their mean over a domain, into a score; higher is further from the source. To add one, write
`features_of` in a file of its own, and `watching` if it reads layers beside the logits; add the
class to registry.py. A detector that needs passes of its own writes `look` instead.
"""

from __future__ import annotations

import functools
import logging
import math
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from unseen.checks import check_fraction, check_int
from unseen.detection.sampling import sample_batches, stack_rows
from unseen.detection.source_statistics import SourceStatistics
from unseen.detection.threshold import p_value
from unseen.errors import UnseenError
from unseen.nn.batch import Batch
from unseen.nn.hooks import laid_out_for
from unseen.nn.inputs import check_finite, check_logits, describe_type, inputs
from unseen.nn.model_errors import model_errors
from unseen.nn.precision import at_least_float32

log = logging.getLogger("unseen")

NOT_CALIBRATED = (
    "no source statistics yet: train with unseen.fit, or call "
    "unseen.calibrate(net, train, held_out) or detector.calibrate(train, held_out)"
)
TRAINING_DATA = "the training data"  # its name in errors
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
    """Scores how far samples are from the source. Write `features_of`; the rest has defaults."""

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    reads_learned_noise: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "look" in vars(cls):
            cls.look = _guard_look(vars(cls)["look"])  # type: ignore[method-assign]

    def __init__(self, net: ScoredModel) -> None:
        if not isinstance(getattr(net, "model", None), nn.Module) or not hasattr(net, "predict"):
            raise UnseenError(
                f"{self.name} needs a method, not {describe_type(net)}: wrap a model, "
                "unseen.ERM(model)"
            )
        self.net = net
        self.statistics: SourceStatistics | None = None
        self._thresholds: dict[tuple[int, float], float] = {}
        self._null: tuple[int, Tensor] | None = None  # scores of source batches of the last size

    # ---- what a detector writes

    @contextmanager
    def watching(self) -> Iterator[Any]:
        """Read layers while the context is open; what it yields is given to `features_of`."""
        yield None

    def features_of(self, logits: Tensor, watched: Any) -> Tensor:
        """Return the features of samples, (N, F), from their logits and what was watched."""
        raise NotImplementedError(f"{type(self).__name__} must write features_of or look")

    @torch.no_grad()
    def look(self, x: Any) -> Look:
        """Predict and compute the features, without gradients."""
        ready = laid_out_for(self.net.model, inputs(x))  # may pass a probe: not watched
        with self.watching() as watched:
            logits = self.net.predict(ready)
        return Look(logits, at_least_float32(self.features_of(logits, watched)))

    def reduce(self, features: Tensor) -> Tensor:
        """Return the score of features or of their mean, (..., F) -> (...)."""
        return features.mean(-1)

    def reduce_mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the score of a mean of features whose elements have these variances.

        A score of absolute deviations is larger for small samples; it overrides this to correct it.
        """
        return self.reduce(mean)

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
        self.fit(sample_batches(train, TRAINING_DATA))
        mean = self._collect(train, TRAINING_DATA).mean(0)
        held = (train, TRAINING_DATA) if held_out is None else (held_out, "held_out")
        # Reduced features may depend on the statistics, so thresholds of the old ones are dropped.
        self._set(SourceStatistics(mean, self._collect(*held)))
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
        statistics = self.calibrated()
        key = check_int("n", n, 1), check_fraction("the false-alarm rate", false_alarm_rate)
        if key not in self._thresholds:
            value = statistics.threshold(self.reduce, n, false_alarm_rate)
            if not math.isfinite(value):
                raise UnseenError(
                    f"the threshold is {value}, no alarm could be raised: calibrate again, and "
                    "look for NaN in the weights"
                )
            self._thresholds[key] = value
        return self._thresholds[key]

    def p_value(self, score: float, n: int) -> float:
        """Return the probability that a source batch of n has at least this score."""
        if self._null is None or self._null[0] != n:
            self._null = n, self.calibrated().null_scores(self.reduce, n)
        return p_value(self._null[1], score)

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
        self._null = None

    def _collect(self, loader: Iterable[Any], name: str) -> Tensor:
        batches = sample_batches(loader, name)
        features = stack_rows(lambda batch: self.look(batch.x).features, batches)
        if not features.isfinite().all():
            raise UnseenError(
                f"the score of {name} is not finite, though the inputs are: look for NaN in the "
                "weights, or lower the learning rates"
            )
        return features


def _guard_look(look: Callable[..., Look]) -> Callable[..., Look]:
    """Check the inputs of a look, and explain errors that the model raises."""

    @functools.wraps(look)
    def guarded(self: Detector, x: Any) -> Look:
        values = check_finite(inputs(x))
        if len(values[0]) == 0:
            raise UnseenError("a score needs at least one sample, x is empty")
        with model_errors(self.net.model, values):
            seen = look(self, values[0] if isinstance(x, Tensor) else values)
        check_logits(seen.logits, len(values[0]))
        return seen

    return guarded


Detector.look = _guard_look(Detector.look)  # type: ignore[method-assign]


def detector_of(net: Any) -> Detector:
    """Return a detector itself, or the detector of a method."""
    detector = net if isinstance(net, Detector) else getattr(net, "detector", None)
    if not isinstance(detector, Detector):
        raise UnseenError(
            f"needs a trained method, not {type(net).__name__}: wrap a model, unseen.ERM(model)"
        )
    return detector
