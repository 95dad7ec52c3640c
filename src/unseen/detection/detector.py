"""The contract of an uncertainty score. Read this first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from unseen.api import Batch, Method


class Look(NamedTuple):
    """What one look at a batch gives: the prediction, and what the score is made of."""

    logits: Tensor  # (N, C) or (N, C, H, W)
    features: Tensor  # (N, F)


class Score(ABC):
    """How little a trained model knows what it sees. Write look(), and fit() if the source is needed.

    A sample's score is `score` of its features; a domain's is `score` of their mean over its samples. Higher is less sure.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]

    def __init__(self, net: Method) -> None:
        self.net = net

    def fit(self, source: Iterable[Batch]) -> None:  # noqa: B027 - most scores need nothing of the source
        """Remember what the score needs of the labelled data that the model was trained on."""

    @abstractmethod
    def look(self, x: Any) -> Look:
        """Predict and look, in as few passes as the score can do with."""

    def score(self, features: Tensor) -> Tensor:
        """Score of (means of) features, (..., F) -> (...)."""
        return features.mean(-1)

    @torch.no_grad()
    def of(self, x: Any) -> Tensor:
        """One score per sample, (N,)."""
        return self.score(self.look(x).features)

    def domain(self, features: Tensor) -> float:
        """One score for samples of one domain, from their features (N, F)."""
        return float(self.score(features.mean(0)))
