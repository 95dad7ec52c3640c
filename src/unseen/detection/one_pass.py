"""Every accuracy signal of a method, from one pass of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector, labelled_rows
from unseen.detection.confidence_transport import ConfidenceTransport, ThresholdedTransport
from unseen.detection.correctness import Correctness
from unseen.detection.detector import Detector
from unseen.detection.difference_of_confidences import DifferenceOfConfidences
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.energy import Energy
from unseen.detection.mano import MaNo
from unseen.detection.nuclear_norm import MOST_CLASSES, NuclearNorm
from unseen.detection.sigma import SigmaDetector
from unseen.detection.source_statistics import SourceStatistics
from unseen.detection.thresholded_confidence import ThresholdedConfidence
from unseen.errors import UnseenError
from unseen.functional.pixels import sampled_labels, sampled_rows
from unseen.nn.batch import Batch, inference_batch_size
from unseen.nn.hooks import laid_out_for
from unseen.nn.inputs import check_finite, check_labels, inputs, take_rows
from unseen.nn.model_errors import model_errors
from unseen.nn.precision import at_least_float32

LOGITS_ONLY = (
    DifferenceOfConfidences,
    ThresholdedConfidence,
    NuclearNorm,
    MaNo,
    ConfidenceTransport,
    ThresholdedTransport,
    Energy,
)
OWN = "own"  # key of the detector in use
OUTPUTS = "outputs"  # key of the predictions
NOISE = (SigmaDetector, EmbeddingShift)  # where the method has learned noise


@dataclass
class Moments:
    """Count, mean and variance of a detector's features over the samples of one domain."""

    n: int
    mean: Tensor  # (F,) float64
    variance: Tensor  # (F,) of single samples

    @classmethod
    def of(cls, features: Tensor) -> Moments:
        rows = features.double().cpu()
        return cls(len(rows), rows.mean(0), rows.var(0, correction=0))

    def blend(self, other: Moments, share: float) -> Moments:
        """Return the moments of n samples of which a share has the moments of the other."""
        step = other.mean - self.mean
        within = (1 - share) * self.variance + share * other.variance
        between = share * (1 - share) * step.square()
        return Moments(self.n, self.mean + share * step, within + between)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of samples."""
        n = self.n + other.n
        return replace(self.blend(other, other.n / n), n=n)

    def score(self, detector: Detector) -> float:
        """Return the detector's score of the domain, corrected for the size of the sample."""
        return float(detector.reduce_mean(self.mean, self.variance / max(1, self.n - 1)))


@dataclass
class Observation:
    """What one pass shows of the samples of one domain."""

    logits: Tensor  # rows, (N, P, C); P is 1, or the pixels that are read of a map
    features: dict[str, Tensor]  # by detector, (N, F)
    correct: Tensor | None = None  # (N, P) bool; with labels
    counted: Tensor | None = None  # (N, P) bool: labels that are not ignored
    own: Tensor | None = None  # features of the detector in use, (N, F)
    outputs: Tensor | None = None  # what the model predicts, (N, C, ...); on demand

    @property
    def n(self) -> int:
        return len(self.logits)

    @property
    def accuracy(self) -> float:
        assert self.correct is not None and self.counted is not None
        if not self.counted.any():
            raise UnseenError("every label of these samples is the ignored one")
        return float(self.correct[self.counted].double().mean())

    @property
    def moments(self) -> dict[str, Moments]:
        """Moments of every signal's features."""
        return {name: Moments.of(features) for name, features in self.features.items()}

    @classmethod
    def concatenate(cls, parts: Sequence[Observation]) -> Observation:
        """Return the observation of all samples of several."""
        first = parts[0]
        more = [
            None if getattr(first, name) is None else torch.cat([getattr(p, name) for p in parts])
            for name in ("correct", "counted", "own", "outputs")
        ]
        features = {n: torch.cat([p.features[n] for p in parts]) for n in first.features}
        return cls(torch.cat([p.logits for p in parts]), features, *more)

    def take(self, index: Tensor) -> Observation:
        """Return the observation of some of the samples."""
        return Observation(
            self.logits[index],
            {name: t[index] for name, t in self.features.items()},
            *(
                None if t is None else t[index]
                for t in (self.correct, self.counted, self.own, self.outputs)
            ),
        )


class OnePass:
    """The detectors whose scores tell accuracy, and the pass that computes all their features."""

    def __init__(self, net: Any, classes: int) -> None:
        self.net = net
        kinds: list[type[Any]] = [
            kind for kind in LOGITS_ONLY if kind is not NuclearNorm or classes <= MOST_CLASSES
        ]
        self.detectors: dict[str, Detector] = {kind.name: kind(net) for kind in kinds}
        for kind in NOISE:
            try:
                self.detectors[kind.name] = kind(net)
            except UnseenError:  # no learned noise, or no named embedding
                continue
        noise = [name for name in self.detectors if self.detectors[name].reads_learned_noise]
        self.correctness = Correctness(net, tuple(noise))

    @property
    def signals(self) -> dict[str, Detector]:
        """All detectors by name; the last one is the correctness probability."""
        return {**self.detectors, self.correctness.name: self.correctness}

    @torch.no_grad()
    def calibrate(self, source: Batch, ignore: int) -> Observation:
        """Fit every detector but the correctness to labelled source samples; observe them."""
        for detector in self.detectors.values():
            if detector.reads_learned_noise:
                detector.fit(_batches(source))
        seen = self.observe(source.x, source.y, ignore)
        logits = seen.logits.transpose(1, 2)
        rows, labels = labelled_rows(logits, sampled_labels(source.y), ignore)
        for name, detector in self.detectors.items():
            if isinstance(detector, ConfidenceDetector):
                detector.fit_to(rows, labels)
                seen.features[name] = detector.features_of(logits, None)
        self.match(seen)
        for name, detector in self.detectors.items():
            mean = seen.features[name].mean(0)
            detector.statistics = SourceStatistics(mean, mean.new_empty(0, len(mean)))
        doc = self.detectors[DifferenceOfConfidences.name]
        assert isinstance(doc, DifferenceOfConfidences)
        self.correctness.temperature = doc.temperature
        return seen

    @torch.no_grad()
    def observe(
        self,
        x: tuple[Tensor, ...],
        y: Tensor | None = None,
        ignore: int = -100,
        *,
        own: Detector | None = None,
        whole: bool = False,
    ) -> Observation:
        """Pass samples of one domain through the model, in batches that fit into memory.

        Detectors that are not fitted yet are left out.

        Args:
            own: a detector whose features are wanted too, from the same pass.
            whole: also return all that the model predicts, such as every pixel of a map.
        """
        if len(x[0]) == 0:
            raise UnseenError("an accuracy estimate needs at least one sample, x is empty")
        check_finite(x)  # of all samples, so that an error gives the index among them
        size = inference_batch_size(x)
        parts = [
            self._look(take_rows(x, slice(start, start + size)), own, whole)
            for start in range(0, len(x[0]), size)
        ]
        names = parts[0][1]
        features = {name: torch.cat([part[name] for _, part in parts]) for name in names}
        own_features, outputs = features.pop(OWN, None), features.pop(OUTPUTS, None)
        observation = Observation(torch.cat([rows for rows, _ in parts]), features)
        observation.own, observation.outputs = own_features, outputs
        self.match(observation)
        if y is not None:
            labels = sampled_labels(y.cpu())
            check_labels(observation.logits.transpose(1, 2), labels, ignore)
            observation.counted = labels != ignore
            observation.correct = observation.logits.argmax(2) == labels
        return observation

    def _look(
        self, x: tuple[Tensor, ...], own: Detector | None, whole: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        detectors = {
            n: d
            for n, d in self.detectors.items()
            if is_fitted(d) and not isinstance(d, ConfidenceTransport)
        }
        shares_pass = own is not None and type(own).look is Detector.look
        same = same_features(own, detectors)
        if own is not None and shares_pass and same is None:
            detectors[OWN] = own
        ready = laid_out_for(self.net.model, inputs(x))
        with ExitStack() as stack:
            stack.enter_context(model_errors(self.net.model, ready))
            watched = {n: stack.enter_context(d.watching()) for n, d in detectors.items()}
            logits = self.net.predict(ready)
        if not logits.isfinite().all():
            raise UnseenError(
                "predictions of these samples are not finite: look for NaN in the inputs or the "
                "weights"
            )
        features = {
            n: at_least_float32(d.features_of(logits, watched[n])).cpu()
            for n, d in detectors.items()
        }
        if same is not None:
            features[OWN] = features[same]
        elif own is not None and not shares_pass:
            features[OWN] = own.look(ready).features.cpu()
        rows = sampled_rows(logits).cpu()
        if is_fitted(self.correctness):
            scores = self.noise_scores(features)
            features[self.correctness.name] = self.correctness.from_rows(rows, scores)
        if whole:
            features[OUTPUTS] = logits.cpu()
        return rows, features

    def regrouped(self, seen: Observation, index: Tensor) -> Observation:
        """Return the observation of some samples as one batch.

        The signals of optimal transport are computed again for this batch.
        """
        chosen = seen.take(index)
        self.match(chosen)
        return chosen

    def join(self, parts: Sequence[Observation]) -> Observation:
        """Concatenate observations and compute the signals of optimal transport again."""
        joined = Observation.concatenate(parts)
        self.match(joined)
        return joined

    def match(self, seen: Observation) -> None:
        """Compute the signals of optimal transport, in a random order that is always the same.

        Samples are matched in groups; those of sorted data would have one class each.
        """
        order = torch.randperm(seen.n, generator=torch.Generator().manual_seed(0))
        logits = seen.logits[order].transpose(1, 2)
        for name, detector in self.detectors.items():
            if isinstance(detector, ConfidenceTransport) and detector.is_fitted:
                features = detector.features_of(logits, None)
                seen.features[name] = torch.empty_like(features)
                seen.features[name][order] = features

    def noise_scores(self, features: Mapping[str, Tensor]) -> Tensor:
        """Return the scores of each sample at the places where noise is learned, (N, places)."""
        names = self.correctness.noise
        scores = [self.detectors[name].reduce(features[name]) for name in names]
        n = next(iter(features.values())).shape[0]  # len() cannot be exported
        return torch.stack(scores, 1) if scores else torch.empty(n, 0)


def _batches(source: Batch) -> Iterable[Batch]:
    size = inference_batch_size(source.x)
    for start in range(0, len(source.y), size):
        yield source.rows(slice(start, start + size))


def same_features(own: Detector | None, detectors: Mapping[str, Detector]) -> str | None:
    """Return the signal that reads the same features as the detector in use, if one does."""
    sigma = detectors.get(SigmaDetector.name)
    if isinstance(own, SigmaDetector) and isinstance(sigma, SigmaDetector):
        return sigma.name if own.positions == sigma.positions else None
    return None


def is_fitted(detector: Detector) -> bool:
    """Return whether a detector needs no fit, or has one."""
    return not isinstance(detector, ConfidenceDetector) or detector.is_fitted
