"""A Lightning callback: calibrate at the end of `fit`, score in `predict`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseen.api import Method
from unseen.checks import check_fraction, check_path
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.accuracy_file import digest_of
from unseen.detection.one_pass import Observation
from unseen.detection.registry import make_detector
from unseen.detection.verdict import RATE, TOLERANCE, Verdict, judge, judge_score
from unseen.errors import UnseenError
from unseen.methods import ERM
from unseen.nn.batch import Batch
from unseen.nn.inputs import inputs
from unseen.nn.tensor_files import read_tensors
from unseen.training.checkpoint import MODEL, load_method
from unseen.training.fit import calibrate, check_method

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise UnseenError(
        f"the callback needs the package lightning, which cannot be imported ({error}): "
        "pip install 'unseen[lightning]'"
    ) from error

log = logging.getLogger("unseen")

SCORE = "unseen_score"  # in a dict that predict_step returns
PREFIX = "model."  # of the module's weights in those of a method


class UnseenCallback(Callback):
    """Calibrates the module at the end of `fit`; judges every loader of `predict`.

    After `fit`, `net` is the calibrated method around the module. After `predict`, `scores` has one
    score per sample and `verdicts` one verdict per loader. If `predict_step` returns dicts, each
    also gets its scores, as "unseen_score". Scoring is a second pass over the samples.

    Args:
        wrap: makes a method of the module, which must return logits from `forward(x)`. Use
            `lambda module: unseen.ERM(module.backbone)` for a part of it, or return a method that
            the module itself trains with.
        source: batches (x, y) of the source; by default the trainer's training data.
        held_out: batches of source data that is not trained on; by default the trainer's
            validation data.
        detector: name of a score, such as "energy"; by default the method's own.
        estimate_accuracy: whether verdicts estimate the accuracy. This needs held-out data, and
            the estimator is fitted to them after `fit`.
        rate: of false alarms.
        tolerance: loss of accuracy against the source that is still fine.
        folder: what `fit` saves the calibrated method to, and `predict` in another process loads.
    """

    def __init__(
        self,
        wrap: Callable[[LightningModule], Method] = ERM,
        *,
        source: Iterable[Any] | None = None,
        held_out: Iterable[Any] | None = None,
        detector: str | None = None,
        estimate_accuracy: bool = True,
        rate: float = RATE,
        tolerance: float = TOLERANCE,
        folder: str | Path | None = None,
    ) -> None:
        self.wrap = wrap
        self.source, self.held_out = source, held_out
        self.detector = detector
        self.estimate_accuracy = estimate_accuracy
        self.rate = check_fraction("rate", rate)
        self.tolerance = check_fraction("tolerance", tolerance, zero=True)
        self.folder = None if folder is None else check_path("folder", folder)
        self.net: Method | None = None
        self.scores: list[Tensor] = []
        self.verdicts: list[Verdict] = []
        self._weights = ""  # digest of those that were calibrated
        self._data: tuple[Iterable[Any], Iterable[Any] | None] | None = None
        self._seen: list[list[Any]] = []

    # ---- fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and trainer.world_size > 1:
            raise UnseenError(
                f"UnseenCallback calibrates in one process, the trainer has {trainer.world_size}: "
                "leave it out, and call unseen.calibrate(unseen.ERM(module), train, held_out) "
                "after the training"
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loaders = trainer.val_dataloaders
        first = loaders[0] if isinstance(loaders, list | tuple) and loaders else loaders
        self.calibrate(
            pl_module,
            trainer.train_dataloader if self.source is None else self.source,
            first if self.held_out is None else self.held_out,
        )

    def calibrate(
        self, module: LightningModule, source: Any, held_out: Iterable[Any] | None = None
    ) -> Method:
        """Calibrate the module on source data; `fit` does it at its end."""
        if source is None:
            raise UnseenError("the trainer has no training data: give UnseenCallback(source=...)")
        net = self.wrap(module)
        check_method(net)
        if self.detector is not None:
            net.detector = make_detector(self.detector, net, {})
        # A user's part of the module may be in train mode; the module is left as it was.
        modes = {part: part.training for part in module.modules()}
        try:
            net.eval()
            calibrate(net, source, held_out)
            if self._estimates(net):
                net.accuracy_estimator  # noqa: B018 - fitted when it is first read
            if self.folder is not None:
                net.save(self.folder)
        finally:
            for part, training in modes.items():
                part.training = training
        self.net, self._weights, self._data = net, digest_of(module), (source, held_out)
        return net

    def _estimates(self, net: Method) -> bool:
        can = net.has_accuracy_estimator or net.held_out is not None
        return self.estimate_accuracy and net.objective.classifies and can

    # ---- predict

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.scores, self.verdicts, self._seen = [], [], []
        if self.net is None and self.folder is not None:
            self.net = self._load(pl_module, self.folder)
            self._weights = digest_of(pl_module)
        if self.net is None:
            raise UnseenError(
                "UnseenCallback is not calibrated: run trainer.fit with it, call "
                "callback.calibrate(module, train, held_out), or give the folder of an earlier fit"
            )
        if digest_of(pl_module) != self._weights:  # such as those of ckpt_path="best"
            if self._data is None:
                raise UnseenError(
                    "the weights are not those that were calibrated: call "
                    "callback.calibrate(module, train, held_out)"
                )
            log.info("the weights have changed since the calibration: calibrating again")
            self.calibrate(pl_module, *self._data)

    def _load(self, module: LightningModule, folder: Path) -> Method:
        """Load the calibrated method of a folder around a module with the same weights."""
        saved, part = read_tensors(folder / MODEL), self.wrap(module).model
        mine = {f"{PREFIX}{name}": tensor.cpu() for name, tensor in part.state_dict().items()}
        if any(n not in saved or not torch.equal(saved[n], mine[n]) for n in mine):
            raise UnseenError(
                f"{folder} was calibrated with other weights than the module has: load those of "
                "the end of fit, or call callback.calibrate(module, train, held_out)"
            )
        return load_method(folder, part).to(module.device)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        assert self.net is not None
        net, x = self.net, _inputs(batch)
        while len(self._seen) <= dataloader_idx:
            self._seen.append([])
            self.scores.append(torch.empty(0))
        if self._estimates(net):
            seen: Any = net.accuracy_estimator.one_pass.observe(x, own=net.detector)
            features: Any = seen.own
        else:
            seen = features = net.detector.look(x).features.cpu()
        scores = net.detector.reduce(features).cpu()
        self._seen[dataloader_idx].append(seen)
        self.scores[dataloader_idx] = torch.cat([self.scores[dataloader_idx], scores])
        if isinstance(outputs, dict):
            outputs[SCORE] = scores

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.verdicts = [self._judge(parts) for parts in self._seen]
        self._seen = []
        for number, verdict in enumerate(self.verdicts):
            log.info("loader %d: %s", number, verdict.sentence)
            for logger in trainer.loggers:
                logger.log_metrics(_metrics(verdict), step=number)

    def _judge(self, parts: list[Any]) -> Verdict:
        assert self.net is not None
        net = self.net
        if isinstance(parts[0], Observation):
            estimator: AccuracyEstimator = net.accuracy_estimator
            whole = estimator.one_pass.join(parts)
            return judge(net.detector, estimator, whole, self.tolerance, self.rate)
        return judge_score(net.detector, torch.cat(parts), self.rate)


def _inputs(batch: Any) -> Any:
    """Return the inputs of a batch for prediction, with or without labels."""
    if isinstance(batch, Tensor):
        return inputs(batch)
    if isinstance(batch, list | tuple) and len(batch) == 1:
        return inputs(batch[0])
    return Batch.of(batch).x


def _metrics(verdict: Verdict) -> dict[str, float]:
    """Return the numbers of a verdict for the trainer's loggers."""
    numbers = {
        "score": verdict.score,
        "threshold": verdict.threshold,
        "alarm": float(verdict.alarm),
        "predicted_accuracy": verdict.predicted_accuracy,
    }
    return {f"unseen/{name}": value for name, value in numbers.items() if value is not None}
