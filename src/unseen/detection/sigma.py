"""Learned noise scale at the first site, relative to the source, in one pass.

score(T) = mean over channels of |sigma(T) - sigma(S)| / sigma(S)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor, nn

from unseen.detection.detector import Detector, ScoredModel
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.functional.scores import relative_deviation
from unseen.nn.heads import GaussianHead
from unseen.nn.hooks import edited
from unseen.nn.perturbed_forward import head_key


class NoisyModel(ScoredModel, Protocol):
    """A method with a Gaussian head for each site."""

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
        assert isinstance(head, GaussianHead)
        self.head = head

    @property
    def feature_count(self) -> int:
        return self.head.width

    @contextmanager
    def watching(self) -> Iterator[list[Tensor]]:
        head, features = self.head, list[Tensor]()

        def read(args: tuple[Any, ...], _: Tensor) -> None:
            features.append(pool(head.sigma(args[0]), head.axis))

        with edited(self.net.model, {self.net.sites[0]: read}):
            yield features

    def features_of(self, logits: Tensor, watched: list[Tensor]) -> Tensor:
        return watched[0]

    def reduce(self, features: Tensor) -> Tensor:
        return relative_deviation(features, self.calibrated().mean.to(features))

    def reduce_mean(self, mean: Tensor, variance: Tensor) -> Tensor:
        return relative_deviation(mean, self.calibrated().mean.to(mean), variance)
