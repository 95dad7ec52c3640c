"""Predicted shift of the embedding by the learned noise, relative to the source, in one pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from unseen.detection.detector import NOT_CALIBRATED, Detector, ScoredModel
from unseen.detection.embedding_shift_predictor import EmbeddingShiftPredictor
from unseen.detection.sampling import stack_rows
from unseen.detection.source_statistics import is_finite_float
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.functional.scores import relative_deviation
from unseen.nn.batch import Batch
from unseen.nn.calls import call_model
from unseen.nn.hooks import captured, evaluating, laid_out_for
from unseen.nn.inputs import inputs
from unseen.nn.model_errors import model_errors
from unseen.nn.perturbed_forward import PerturbedForward
from unseen.nn.places import channel_axis, declared_features
from unseen.nn.random import Draws, fresh_seeds

DRAWS = 4  # of noise, to measure how far it moves a sample
PREFIX = "reader/"  # of the predictor's tensors in source.safetensors, since format 1


class PerturbedModel(ScoredModel, Protocol):
    """A method that can pass a batch with learned noise."""

    def perturbed_forward(self, batch: Batch) -> PerturbedForward: ...


class EmbeddingShift(Detector):
    name = "embedding_shift"
    summary = "relative deviation from the source of the shift of the embedding by learned noise"
    paper = "after Qiao and Peng, Uncertainty-guided Model Generalization, CVPR 2021"
    reads_learned_noise = True

    def __init__(self, net: PerturbedModel) -> None:
        super().__init__(net)
        if net.embedding is None or not hasattr(net, "perturbed_forward"):
            raise UnseenError(
                "a score at the embedding needs learned noise and a named layer, "
                f'such as embedding="fc2"; {net.name} lacks one of them'
            )
        self.noisy = net
        self.layer = net.embedding
        self.axis = channel_axis(net.model, self.layer)
        declared = declared_features(net.model, self.layer)
        self.width = None if declared is None else declared.width
        self.predictor: EmbeddingShiftPredictor | None = None

    @property
    def feature_count(self) -> int | None:
        return self.width

    def fit(self, source: Iterable[Batch]) -> None:
        rows = stack_rows(lambda batch: torch.cat(self.measure_shift(batch.x), 1), source)
        self.predictor = EmbeddingShiftPredictor.fit(*rows.chunk(2, 1))

    @contextmanager
    def watching(self) -> Iterator[dict[str, Tensor]]:
        with captured(self.net.model, (self.layer,)) as outputs:
            yield outputs

    def features_of(self, logits: Tensor, watched: dict[str, Tensor]) -> Tensor:
        if self.predictor is None:
            raise UnseenError(NOT_CALIBRATED)
        return self.predictor(pool(watched[self.layer], self.axis))

    def reduce(self, features: Tensor) -> Tensor:
        return relative_deviation(features, self.calibrated().mean.to(features))

    def reduce_mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return relative_deviation(mean, self.calibrated().mean.to(mean), variance)

    @torch.no_grad()
    def measure_shift(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return the embedding and the mean squared shift of it over DRAWS draws, (N, F) each."""
        model = self.net.model
        ready = laid_out_for(model, inputs(x))
        theta = {name: p.detach() for name, p in model.named_parameters()}
        z = self._embed(ready)
        # The draws are fixed, and the caller's random numbers are left alone.
        with torch.random.fork_rng(devices=[]), evaluating(model):
            torch.manual_seed(0)
            run = self.noisy.perturbed_forward(Batch(ready, torch.zeros(len(z), dtype=torch.int64)))
            moved = run(theta, ready, Draws(fresh_seeds(DRAWS), z.device)).embedding
        assert moved is not None
        moved = pool(moved, self.axis).reshape(DRAWS, *z.shape)
        return z, (moved - z).square().mean(0)

    def fitted_state(self) -> dict[str, Tensor]:
        assert self.predictor is not None
        return {f"{PREFIX}{name}": t for name, t in vars(self.predictor).items()}

    def load_fitted_state(self, state: Mapping[str, Tensor]) -> None:
        features = len(self.calibrated().mean)
        fields = [field.name for field in dataclasses.fields(EmbeddingShiftPredictor)]
        if set(state) != {f"{PREFIX}{name}" for name in fields}:
            raise UnseenError(
                f"must hold mean and held_out, and {PREFIX} with {', '.join(fields)}; "
                f"beside the first two it holds {', '.join(state) or 'nothing'}"
            )
        for name, tensor in state.items():
            shape = (features, features) if name == f"{PREFIX}weight" else (features,)
            if tensor.shape != shape or not is_finite_float(tensor):
                raise UnseenError(
                    f"{name} must hold finite numbers of shape {shape}: "
                    "run `unseen calibrate` again"
                )
        self.predictor = EmbeddingShiftPredictor(
            **{name.removeprefix(PREFIX): t for name, t in state.items()}
        )

    def _embed(self, ready: tuple[Tensor, ...]) -> Tensor:
        """Return the embedding, averaged over space."""
        model = self.net.model
        with model_errors(model, ready), evaluating(model), self.watching() as outputs:
            call_model(model, ready)
        return pool(outputs[self.layer], self.axis)
