"""Predict, score and judge with a trained method, in torch, by the verbs of exported models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.api import Method
from unseen.deploy.calibrate_export import calibration_of
from unseen.deploy.input_reader import InputReader
from unseen.deploy.reductions import Array
from unseen.deploy.scorer import Scorer
from unseen.deploy.seen import Seen
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.chunks import pieces_of
from unseen.detection.one_pass import Observation
from unseen.functional.verdict import RATE
from unseen.nn.inputs import inputs


class RunScorer(Scorer):
    """A trained method with its score, thresholds and accuracy estimator.

    Args:
        net: a calibrated method.
        estimator: its accuracy estimator; without, verdicts are by the score alone.
        classes: names of the classes.
        about: entries as in the metadata of an exported model, such as labels and preprocessing.
        example: returns samples of the model's inputs; called when a reader is first needed.
    """

    def __init__(
        self,
        net: Method,
        estimator: AccuracyEstimator | None = None,
        *,
        classes: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
        place: str = "the method",
        rate: float = RATE,
        example: Any = None,
    ) -> None:
        calibration = calibration_of(net, estimator, (), classes, about or {}, portable=False)
        super().__init__(calibration, place, rate)
        self.net, self.estimator, self._example = net, estimator, example

    @cached_property
    def reader(self) -> InputReader:
        recorded = self.calibration.more.get("preprocessing")
        if (isinstance(recorded, Mapping) and "reader" in recorded) or self._example is None:
            return InputReader.of(recorded, (), self.place)
        (x, *more) = inputs(self._example())
        shape = () if more else tuple(x.shape[1:])
        return InputReader.of(recorded, shape, self.place, str(x.dtype).removeprefix("torch."))

    def observe(self, x: Any) -> Seen:
        given = inputs(_tensors(x))
        given = given.like(given, [t.to(self.net.device) for t in given])
        if self.estimator is None:
            looks = [*pieces_of(given, self.net.detector.look)]
            logits = torch.cat([look.logits.cpu() for look in looks])
            features = torch.cat([look.features.cpu() for look in looks])
            return Seen(_array(logits), self._scores(features), _array(features), {})
        one_pass = self.estimator.one_pass
        parts = pieces_of(
            given, lambda piece: one_pass.observe(piece, own=self.net.detector, whole=True)
        )
        seen = Observation.concatenate([*parts])
        assert seen.own is not None and seen.outputs is not None
        accuracy = self._accuracy()
        signals = {n: _array(t) for n, t in seen.features.items() if n not in accuracy.transports}
        scores, rows = self._scores(seen.own), _array(seen.logits)
        return Seen(_array(seen.outputs), scores, _array(seen.own), signals, rows)

    @torch.no_grad()
    def _scores(self, features: Tensor) -> Array:
        return _array(self.net.detector.reduce(features.to(self.net.device)))


def _tensors(x: Any) -> Any:
    """Return arrays as tensors; tuples and mappings of them too."""
    if isinstance(x, Mapping):
        return {name: _tensors(value) for name, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(_tensors(value) for value in x)
    return torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x


def _array(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
