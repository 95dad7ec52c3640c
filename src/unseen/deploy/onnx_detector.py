"""Predict, score and judge with an exported model, without torch.

detector = OnnxDetector("model.onnx")
detector.predict(x)  # logits
detector.score(x)  # one score per sample
detector.verdict(x).sentence
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from unseen.checks import check_path
from unseen.deploy.calibration import SIGNAL, Calibration
from unseen.deploy.feeds import feeds_of
from unseen.deploy.reductions import Array
from unseen.deploy.scorer import Scorer
from unseen.deploy.seen import DeployedEstimate as DeployedEstimate
from unseen.deploy.seen import Seen as Seen
from unseen.deploy.session import check_graph, open_session
from unseen.errors import UnseenError
from unseen.functional.verdict import RATE

QUICK = ("logits", "score", "features")  # outputs that need no accuracy estimator


class OnnxDetector(Scorer):
    """A model that `unseen export` wrote, with its score, thresholds and accuracy estimator.

    Args:
        path: the .onnx file.
        rate: false-alarm rate of `alarm` and `verdict`.
        providers: of onnxruntime, such as ["CUDAExecutionProvider"]; by default the CPU.
        threads: of onnxruntime; by default its own choice.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        rate: float = RATE,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        threads: int | None = None,
    ) -> None:
        self.path = check_path("path", path)
        self._options = (tuple(providers), threads)
        self._session = open_session(self.path, *self._options)
        metadata = self._session.get_modelmeta().custom_metadata_map
        calibration = Calibration.from_metadata(metadata, str(self.path))
        super().__init__(calibration, str(self.path), rate)
        self._outputs = check_graph(self._session, self.calibration, self.path)
        self._opening = threading.Lock()

    @cached_property
    def _quick_session(self) -> Any:
        """A session without the signals of the accuracy estimator; opened when first needed."""
        if set(self._outputs) <= set(QUICK):
            return self._session
        return open_session(self.path, *self._options, outputs=QUICK)

    def observe(self, x: Any) -> Seen:
        found = self._run(x, self._outputs, self._session)
        values = dict(zip(self._outputs, found, strict=True))
        signals = {n.removeprefix(SIGNAL): v for n, v in values.items() if n.startswith(SIGNAL)}
        own = (values["logits"], values["score"], values["features"])
        return Seen(*own, signals, values.get("rows"))

    # These need no signals of the estimator.

    def predict(self, x: Any) -> Array:
        return self._run_quick(x, "logits")[0]

    def score(self, x: Any) -> Array:
        return self._run_quick(x, "score")[0]

    def predict_and_score(self, x: Any) -> tuple[Array, Array]:
        logits, scores = self._run_quick(x, "logits", "score")
        return logits, scores

    def domain_score(self, x: Any) -> float:
        return self.domain_score_of(self._run_quick(x, "features")[0])

    def alarm(self, x: Any, rate: float | None = None) -> bool:
        features = self._run_quick(x, "features")[0]
        return self.domain_score_of(features) > self.threshold(len(features), rate)

    def _run_quick(self, x: Any, *outputs: str) -> list[Array]:
        with self._opening:
            session = self._quick_session
        return self._run(x, list(outputs), session)

    def _run(self, x: Any, outputs: list[str], session: Any) -> list[Array]:
        feeds = feeds_of(x, self.calibration.inputs, self.path)
        try:
            return [np.asarray(v) for v in session.run(outputs, feeds)]
        except Exception as error:  # onnxruntime raises its own types
            raise UnseenError(f"{self.path} cannot run these inputs: {error}") from error
