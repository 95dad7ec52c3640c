"""The domain score of a method with learned noise: how its scale differs from the source's, in one pass.

    score(T) = mean over features of |s(T) - s(S)| / s(S)

s is the first site's sigma, as the paper has it. Read at the embedding, it is how far the noise moves the embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import NO_STATISTICS, Batch, Method
from unseen.detection.source_statistics import lack_of_confidence, relative_deviation
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.nn.heads import GaussianHead
from unseen.nn.hooks import captured, edited, evaluating, submodule
from unseen.nn.perturbed_forward import PerturbedForward, head_key
from unseen.nn.random import Draws, fresh_seeds

LOOKS = 4  # draws of noise that show how far it moves a sample


class SigmaScore(Method):
    """A method with a Gaussian head for each site."""

    heads: nn.ModuleDict
    noise: Any

    def perturbed_forward(self, batch: Batch) -> PerturbedForward:
        """How noise enters this model."""
        raise NotImplementedError

    @property
    def score_name(self) -> str:
        return (
            "sigma" if self.noise.kind in ("learned", "random_mu") else "max_softmax"
        )  # else sigma is never learned

    @torch.no_grad()
    def predict_with_uncertainty(self, x: Any) -> tuple[Tensor, Tensor]:
        """Logits and one score per sample, in one pass."""
        logits, features = self.predict_with_features(x)
        return logits, self.score(features)

    @torch.no_grad()
    def score_features(self, x: Any) -> Tensor:
        return self.predict_with_features(x)[1]

    def score(self, features: Tensor) -> Tensor:
        if self.score_name != "sigma":
            return super().score(features)
        if self.reference is None:
            raise UnseenError(NO_STATISTICS)
        return relative_deviation(features, self.reference.mean.to(features))

    @torch.no_grad()
    def predict_with_features(self, x: Any) -> tuple[Tensor, Tensor]:
        """Logits and score features, in one pass."""
        if self.score_name != "sigma":
            logits = self.predict(x)
            return logits, lack_of_confidence(logits)
        ready = self._ready(x)
        if self.reader is not None:
            logits, z = self._embedded(ready)
            return logits, self.reader(z)
        head = self.heads[head_key(self.sites[0])]
        assert isinstance(head, GaussianHead)
        features: list[Tensor] = []

        def read(args: tuple[Any, ...], _: Tensor) -> None:
            features.append(pool(head.sigma(args[0]), head.axis))

        with evaluating(self.model), edited(self.model, {self.sites[0]: read}):
            logits = self.model(*ready)
        return logits, features[0]

    @torch.no_grad()
    def transport(self, x: Any) -> Tensor:
        """Each sample's embedding, and beside it how far, squared, the learned noise moves it: (N, 2F)."""
        if self.score_name != "sigma" or self.embedding is None:
            raise UnseenError(
                'a score is read at the embedding only where noise is learned and there is one: embedding="fc2"'
            )
        ready = self._ready(x)
        theta = {name: p.detach() for name, p in self.model.named_parameters()}
        z = self._embedded(ready)[1]
        with torch.random.fork_rng(devices=[]), evaluating(self.model):
            torch.manual_seed(0)
            run = self.perturbed_forward(Batch(ready, torch.zeros(len(z), dtype=torch.int64)))
            moved = run(theta, ready, Draws(fresh_seeds(LOOKS), self.device)).embedding
        assert moved is not None
        moved = pool(moved, self._embedding_axis()).reshape(LOOKS, *z.shape)
        return torch.cat([z, (moved - z).square().mean(0)], 1)

    def _embedded(self, ready: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Logits and the embedding, averaged over space, in one pass."""
        assert self.embedding is not None
        with evaluating(self.model), captured(self.model, (self.embedding,)) as seen:
            logits = self.model(*ready)
        return logits, pool(seen[self.embedding], self._embedding_axis())

    def _embedding_axis(self) -> int:
        assert self.embedding is not None
        return (
            -1 if isinstance(submodule(self.model, self.embedding, "embedding"), nn.Linear) else 1
        )
