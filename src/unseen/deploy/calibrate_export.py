"""The calibration of an exported model, from a method and its accuracy estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.api import Method
from unseen.deploy.calibration import AccuracyNumbers, Calibration, Input
from unseen.deploy.reductions import Array, Kind, Reduction
from unseen.deploy.seen import LabelKind
from unseen.deploy.thresholds import null_scores, threshold_from
from unseen.deploy.transport import Transport
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.confidence_transport import ConfidenceTransport
from unseen.detection.detector import Detector
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.mano import MaNo
from unseen.detection.nuclear_norm import NuclearNorm
from unseen.detection.sigma import SigmaDetector
from unseen.errors import UnseenError
from unseen.installed import package_version

SIZES = (1, 8, 32, 64, 256, 1024)  # of the table of thresholds
RATES = (0.001, 0.01, 0.05)
KINDS: dict[Callable[..., Any], Kind] = {
    Detector.reduce: "mean",
    SigmaDetector.reduce: "relative_deviation",
    EmbeddingShift.reduce: "relative_deviation",
    NuclearNorm.reduce: "nuclear_norm",
    MaNo.reduce: "mano",
}


def calibration_of(
    net: Method,
    estimator: AccuracyEstimator | None,
    inputs: Sequence[Input],
    classes: Sequence[str],
    about: Mapping[str, Any],
    *,
    portable: bool = True,
) -> Calibration:
    """Collect what an exported model must know of its source.

    Args:
        portable: with a table of thresholds, and only with reductions that can be written to a
            file. A method in memory needs neither.
    """
    statistics = net.detector.calibrated()
    if not len(statistics.held_out):
        raise UnseenError(
            "the held-out source samples were dropped, so no threshold can be exported: load the "
            "run again"
        )
    reduction = reduction_of(net.detector, portable)
    held_out = _array(statistics.held_out.to(statistics.mean))
    return Calibration(
        detector=net.detector.name,
        reduction=reduction,
        held_out=held_out,
        inputs=tuple(inputs),
        classes=tuple(classes),
        accuracy=None if estimator is None else _accuracy_numbers(estimator),
        more={
            "version": package_version(),
            "method": net.name,
            "score": net.detector.summary,
            "labels": label_kind(net),
            **about,
            **({"thresholds": threshold_table(held_out, reduction)} if portable else {}),
        },
    )


def threshold_table(held_out: Array, reduction: Reduction) -> dict[str, Any]:
    """Return thresholds by batch size and false-alarm rate."""
    scores = {n: null_scores(held_out, reduction, n) for n in SIZES}
    values = [[threshold_from(scores[n], rate) for rate in RATES] for n in SIZES]
    return {"batch_sizes": SIZES, "rates": RATES, "values": values}


def label_kind(net: Method) -> LabelKind:
    """Return what a method predicts, by its loss; a task says whether it predicts maps."""
    if net.objective.classifies:
        return "classes"
    return "several" if net.objective.name == "bce" else "number"


@dataclass(frozen=True)
class TorchReduction(Reduction):
    """The reduction of a detector that is not one of unseen's."""

    detector: Detector | None = None

    def __call__(self, mean: Array, variance: Array | None = None) -> Array:
        assert self.detector is not None
        device = self.detector.calibrated().mean.device
        given = torch.from_numpy(np.ascontiguousarray(mean)).to(device)
        with torch.no_grad():
            if variance is None:
                return _array(self.detector.reduce(given))
            spread = torch.from_numpy(np.ascontiguousarray(variance)).to(device)
            return _array(self.detector.reduce_mean(given, spread))


def reduction_of(detector: Detector, portable: bool = True) -> Reduction:
    """Return what turns mean features into the detector's score."""
    kind = KINDS.get(type(detector).reduce)
    if kind is None and not portable:
        return TorchReduction("mean", detector=detector)
    if kind is None:
        raise UnseenError(
            f"the detector {detector.name} has a reduce of its own, which an exported model cannot "
            f"compute: use one of {', '.join(sorted(set(KINDS.values())))}"
        )
    relative = kind == "relative_deviation"
    return Reduction(kind, _array(detector.calibrated().mean) if relative else None)


def _accuracy_numbers(estimator: AccuracyEstimator) -> AccuracyNumbers:
    signals = estimator.one_pass.signals
    return AccuracyNumbers(
        combined=estimator.combined,
        null=estimator.null,
        source_accuracy=estimator.source_accuracy,
        classes=estimator.classes,
        reductions={name: reduction_of(detector) for name, detector in signals.items()},
        transports={
            name: Transport(
                detector.temperature,
                _array(detector.marginal),
                getattr(detector, "threshold_of_confidence", None),
            )
            for name, detector in signals.items()
            if isinstance(detector, ConfidenceTransport)
        },
    )


def _array(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
