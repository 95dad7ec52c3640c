"""A plain module of a method: logits, score, and what a verdict is computed from."""

from __future__ import annotations

from contextlib import ExitStack

from torch import Tensor, nn

from unseen.api import Method
from unseen.deploy.calibration import SIGNAL
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.confidence_transport import ConfidenceTransport
from unseen.detection.detector import Detector
from unseen.detection.one_pass import OWN, same_features
from unseen.errors import UnseenError
from unseen.functional.pixels import sampled_rows
from unseen.nn.inputs import Inputs
from unseen.nn.precision import at_least_float32


class ScoredModule(nn.Module):
    """Computes everything in one pass, without checks that depend on values: it can be traced."""

    def __init__(
        self, net: Method, estimator: AccuracyEstimator | None, names: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        check_single_pass(net)
        self.net, self.names = net, names
        self.one_pass = None if estimator is None else estimator.one_pass
        self.detectors: dict[str, Detector] = {}
        if self.one_pass is not None:
            self.detectors = {
                name: detector
                for name, detector in self.one_pass.detectors.items()
                if not isinstance(detector, ConfidenceTransport)  # not a function of one sample
            }
        self.same = same_features(net.detector, self.detectors)

    @property
    def output_names(self) -> list[str]:
        """The names of what `forward` returns."""
        names = ["logits", "score", "features"]
        if self.one_pass is not None:
            signals = [*self.detectors, self.one_pass.correctness.name]
            names += ["rows", *(f"{SIGNAL}{name}" for name in signals)]
        return names

    def forward(self, *x: Tensor) -> tuple[Tensor, ...]:
        own, detectors = self.net.detector, dict(self.detectors)
        if self.same is None:
            detectors[OWN] = own
        with ExitStack() as stack:
            watched = {n: stack.enter_context(d.watching()) for n, d in detectors.items()}
            logits = at_least_float32(self.net.logits(Inputs(x, self.names)))
        features = {
            n: at_least_float32(d.features_of(logits, watched[n])) for n, d in detectors.items()
        }
        own_features = features.pop(OWN) if self.same is None else features[self.same]
        outputs = [logits, own.reduce(own_features), own_features]
        if self.one_pass is not None:
            rows = sampled_rows(logits)
            noise = self.one_pass.noise_scores(features)
            correctness = self.one_pass.correctness.from_rows(rows, noise)
            outputs += [rows, *features.values(), correctness]
        return tuple(outputs)


def check_single_pass(net: Method) -> None:
    """Raise unless predictions and score come from one pass that is always the same."""
    kind = type(net.detector)
    if type(net).predict is not Method.predict:
        raise UnseenError(
            f"{net.name} predicts in its own way, with random passes: it cannot be exported as one "
            "graph. Train another method to export"
        )
    if kind.look is not Detector.look:
        raise UnseenError(
            f"the score {net.detector.name} needs passes of its own and cannot be exported: set "
            "net.detector to one that reads the prediction's pass, such as unseen.detection.Energy"
        )
