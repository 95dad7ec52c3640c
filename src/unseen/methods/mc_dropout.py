"""Monte-Carlo dropout (Gal and Ghahramani, ICML 2016).

    min over theta of E_m[L(theta, m; S)],   z <- m z / (1 - rate),   m ~ Bernoulli(1 - rate)
    p(y | x) = mean over passes of p(y | x, theta, m_k)

z is the embedding. Only what lies behind it differs between passes, so the layers before it are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_fraction, check_int
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.methods.sampled_passes import SampledPasses
from unseen.nn.hooks import edited
from unseen.nn.rows import fold


class MCDropout(SampledPasses, ERM):
    """Dropout at the embedding, in training and in prediction: many thinned networks answer, their variance is the doubt."""

    name = "mc_dropout"
    summary = "dropout at the embedding that stays on: predicts by many thinned passes, whose variance is its score"
    paper = "Gal and Ghahramani, Dropout as a Bayesian Approximation, ICML 2016"

    def __init__(
        self, model: nn.Module, *, rate: float = 0.5, passes: int = 30, **common: Any
    ) -> None:
        super().__init__(model, **common)
        if self.embedding is None:
            raise UnseenError(
                "mc_dropout drops features of the embedding: name the last hidden layer, embedding=..."
            )
        self.rate, self.passes = check_fraction("rate", rate), check_int("passes", passes, 2)
        self._may_fold: bool | None = None

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert self.embedding is not None
        with edited(self.model, {self.embedding: lambda _, z: F.dropout(z, self.rate)}):
            return super().losses(batch)

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        if self._may_fold is None:
            self._may_fold = self._folding_agrees(
                tuple(t[:2] if len(t) == len(x[0]) else t for t in x)
            )
        return (
            iter(self.folded(x, self.passes)) if self._may_fold else self.one_by_one(x, self.passes)
        )

    def one_by_one(self, x: tuple[Tensor, ...], passes: int) -> Iterator[Tensor]:
        """Every pass from the input on."""
        assert self.embedding is not None
        for k in range(passes):
            with edited(self.model, {self.embedding: partial(self._thinned, k)}):
                logits = self.model(*x)
            yield logits

    def _thinned(self, k: int, _: Any, z: Tensor) -> Tensor:
        return z * thinning(z, self.rate, k)

    def folded(self, x: tuple[Tensor, ...], passes: int) -> Tensor:
        """All passes as one batch from the embedding on, (passes, N, ...): the same numbers, the layers before it once."""
        assert self.embedding is not None

        def thinned(_: Any, z: Tensor) -> Tensor:
            masks = torch.stack([thinning(z, self.rate, k) for k in range(passes)])
            return fold(z, passes) * masks.repeat_interleave(len(z), 0)

        with edited(self.model, {self.embedding: thinned}):
            logits = self.model(*x)
        return logits.unflatten(0, (passes, -1))

    def _folding_agrees(self, probe: tuple[Tensor, ...]) -> bool:
        """Ask once, with two samples and two passes, whether the batch may grow inside the model."""
        one_by_one = torch.stack(list(self.one_by_one(probe, 2)))
        if one_by_one.dim() > 3:
            return False  # a map of logits for each pass would be too much memory
        try:
            folded = self.folded(probe, 2)
            return folded.shape == one_by_one.shape and torch.allclose(
                folded, one_by_one, rtol=1e-4, atol=1e-4
            )
        except Exception:  # whatever the user's forward raises when it meets a batch that grew
            return False


def thinning(z: Tensor, rate: float, seed: int) -> Tensor:
    """The mask of one pass, one for all samples: 0 with that chance, else 1 / (1 - rate); of the shape of one sample."""
    kept = torch.rand(z.shape[1:], generator=torch.Generator().manual_seed(seed)) >= rate
    return kept.to(z) / (1 - rate)
