"""Learned noise scale at the first site, relative to the source, in one pass.

score(T) = mean over channels of |sigma(T) - sigma(S)| / sigma(S)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unseen.detection.detector import Detector, ScoredModel
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.functional.scores import relative_deviation
from unseen.nn.heads import NoiseHead
from unseen.nn.hooks import edited
from unseen.nn.perturbed_forward import head_key

POSITIONS = 100  # of a map that are read, about: a score should cost little beside a prediction


class NoisyModel(ScoredModel, Protocol):
    """A method with a noise head for each site."""

    @property
    def heads(self) -> nn.ModuleDict: ...


class SigmaDetector(Detector):
    name = "sigma"
    summary = "relative deviation from the source of the learned noise scale at the first site"
    paper = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"
    reads_learned_noise = True

    def __init__(self, net: NoisyModel) -> None:
        super().__init__(net)
        heads = getattr(net, "heads", {})
        if not net.sites or head_key(net.sites[0]) not in heads:
            raise UnseenError(f"{self.name} needs a method with learned noise, not {net.name}")
        head = heads[head_key(net.sites[0])]
        assert isinstance(head, NoiseHead)
        self.head = head
        self.positions = POSITIONS  # 0: all

    @property
    def feature_count(self) -> int:
        return self.head.width

    @contextmanager
    def watching(self) -> Iterator[list[Tensor]]:
        head, features = self.head, list[Tensor]()

        def read(args: tuple[Any, ...], h: Tensor) -> None:
            every = distance(self._map_of(h), self.positions)
            read = head.input_of(args[0] if args else None, h)
            features.append(pool(head.sigma(read, every), head.axis))

        with edited(self.net.model, {self.net.sites[0]: read}):
            yield features

    def _map_of(self, output: Tensor) -> tuple[int, ...]:
        """Return the size of the site's map without batch and channels."""
        return tuple(output.movedim(self.head.axis, 1).shape[2:])

    def features_of(self, logits: Tensor, watched: list[Tensor]) -> Tensor:
        return watched[0]

    def reduce(self, features: Tensor) -> Tensor:
        return relative_deviation(features, self.calibrated().mean.to(features))

    def reduce_mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return relative_deviation(mean, self.calibrated().mean.to(mean), variance)

    def fitted_state(self) -> dict[str, Tensor]:
        return {"positions": torch.tensor(self.positions)}

    def load_fitted_state(self, state: Mapping[str, Tensor]) -> None:
        rest = dict(state)
        positions = rest.pop("positions", torch.tensor(0))  # older runs read all
        super().load_fitted_state(rest)
        if positions.dim() or positions.is_floating_point() or positions < 0:
            raise UnseenError("positions must be a whole number: calibrate the model again")
        self.positions = int(positions)


def distance(shape: tuple[int, ...], positions: int) -> int:
    """Return the distance along each axis at which about that many positions of a map are read."""
    total = math.prod(shape)
    if not positions or not shape or total <= positions:
        return 1
    every = round((total / positions) ** (1 / len(shape)))
    return int(max(1, min(every, *shape)))
