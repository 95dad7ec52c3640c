"""The detectors by name: saved runs are loaded with them, and the generic tests run over them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from unseen.detection.detector import Detector
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.energy import Energy
from unseen.detection.entropy import Entropy
from unseen.detection.mahalanobis import Mahalanobis
from unseen.detection.max_softmax import MaxSoftmax
from unseen.detection.predictive_variance import PredictiveVariance
from unseen.detection.sigma import SigmaDetector
from unseen.detection.total_variance import TotalVariance
from unseen.errors import UnseenError

DETECTORS: dict[str, type[Detector]] = {
    kind.name: kind
    for kind in (
        SigmaDetector,
        EmbeddingShift,
        PredictiveVariance,
        TotalVariance,
        MaxSoftmax,
        Entropy,
        Energy,
        Mahalanobis,
    )
}


def make_detector(name: str, net: Any, options: Mapping[str, str] | None = None) -> Detector:
    """Make the detector of that name for a method; `options` are those of its constructor."""
    if name not in DETECTORS:
        raise UnseenError(f'no detector "{name}"; there are: {", ".join(DETECTORS)}')
    kind, chosen = DETECTORS[name], dict(options or {})
    known = list(inspect.signature(kind).parameters)[1:]  # the first is the method
    if unknown := [option for option in chosen if option not in known]:
        raise UnseenError(
            f"the detector {name} has no option {', '.join(unknown)}; it has: "
            f"{', '.join(known) or 'none'}"
        )
    return kind(net, **chosen)
