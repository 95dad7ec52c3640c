"""Monte-Carlo dropout (Gal and Ghahramani, ICML 2016).

    min over theta of E_m[L(theta, m; S)],   z <- m z / (1 - rate),   m ~ Bernoulli(1 - rate)
    p(y | x) = mean over passes of p(y | x, theta, m_k)

z is the embedding. Passes differ only behind it, so the layers before it are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_fraction, check_int
from unseen.methods.erm import ERM
from unseen.methods.sampled_passes import SampledPasses
from unseen.nn.hooks import edited
from unseen.nn.inputs import take_rows
from unseen.nn.rows import fold
from unseen.nn.synchronized import dropout


class MCDropout(SampledPasses, ERM):
    """Dropout at the embedding in training and prediction; the score is the predictive variance."""

    name = "mc_dropout"
    summary = "dropout at the embedding, also in prediction; averages sampled passes"
    paper = "Gal and Ghahramani, Dropout as a Bayesian Approximation, ICML 2016"

    needs_embedding = True
    edits_passes = True

    def __init__(
        self, model: nn.Module, *, rate: float = 0.5, passes: int = 30, **common: Any
    ) -> None:
        super().__init__(model, **common)
        self.rate = check_fraction("rate", rate)
        self.passes = check_int("passes", passes, 2)
        self._can_fold: bool | None = None

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert self.embedding is not None
        with edited(self.model, {self.embedding: lambda _, z: dropout(z, self.rate)}):
            return super().losses(batch)

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        if not self.is_built:
            self._prepare(x)
        if self._can_fold is None:
            self._can_fold = self._folding_agrees(take_rows(x, slice(2)))
        return (
            iter(self.forward_folded(x, self.passes))
            if self._can_fold
            else self.forward_separately(x, self.passes)
        )

    def forward_separately(self, x: tuple[Tensor, ...], passes: int) -> Iterator[Tensor]:
        """Compute every pass from the input."""
        assert self.embedding is not None
        for k in range(passes):
            with edited(self.model, {self.embedding: partial(self._drop, k)}):
                logits = self.logits(x)
            yield logits

    def _drop(self, k: int, _: Any, z: Tensor) -> Tensor:
        return z * dropout_mask(z, self.rate, k)

    def forward_folded(self, x: tuple[Tensor, ...], passes: int) -> Tensor:
        """Compute all passes as one batch behind the embedding, (passes, N, ...)."""
        assert self.embedding is not None

        def drop(_: Any, z: Tensor) -> Tensor:
            masks = torch.stack([dropout_mask(z, self.rate, k) for k in range(passes)])
            return fold(z, passes) * masks.repeat_interleave(len(z), 0)

        with edited(self.model, {self.embedding: drop}):
            logits = self.logits(x)
        return logits.unflatten(0, (passes, -1))

    def _folding_agrees(self, probe: tuple[Tensor, ...]) -> bool:
        """Test on a few samples whether the batch may grow inside the model."""
        separate = torch.stack(list(self.forward_separately(probe, 2)))
        if separate.dim() > 3:
            return False  # logit maps of all passes would take too much memory
        try:
            folded = self.forward_folded(probe, 2)
            return folded.shape == separate.shape and torch.allclose(
                folded, separate, rtol=1e-4, atol=1e-4
            )
        except Exception:  # a user's forward may raise anything on a larger batch
            return False


def dropout_mask(z: Tensor, rate: float, seed: int) -> Tensor:
    """Return the mask of one pass, shared by all samples: 0 or 1 / (1 - rate)."""
    mask = torch.rand(z.shape[1:], generator=torch.Generator().manual_seed(seed)) >= rate
    return mask.to(z) / (1 - rate)
