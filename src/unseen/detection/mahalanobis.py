"""Mahalanobis distance to the nearest class of the source (Lee, Lee, Lee and Shin, NeurIPS 2018).

    score(x) = min over classes c of (f(x) - mu_c)' C^-1 (f(x) - mu_c)

f is the output of the layer that the uncertainty-guided score reads, averaged over space.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, Method, inputs
from unseen.detection.detector import Look, Score
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.nn.hooks import edited, evaluating, laid_out_for, submodule


class Mahalanobis(Score):
    name = "mahalanobis"
    summary = "distance of the output of the layer that the score reads, pooled over space, to the nearest class of the source"
    paper = "Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples, NeurIPS 2018"

    def __init__(self, net: Method) -> None:
        super().__init__(net)
        if not net.sites:
            raise UnseenError(
                "mahalanobis reads the first site, and this model was trained without any: name sites"
            )
        self.layer = net.sites[0] if net.reader is None or net.embedding is None else net.embedding
        self.axis = -1 if isinstance(submodule(net.model, self.layer, "site"), nn.Linear) else 1
        self.whitening: Tensor | None = None

    def fit(self, source: Iterable[Batch]) -> None:
        seen = [(self._pass(batch.x)[1].double().cpu(), batch.y) for batch in source]
        if not seen:
            raise UnseenError("mahalanobis needs labelled data of the source, there is none")
        features, y = torch.cat([f for f, _ in seen]), torch.cat([y.cpu() for _, y in seen])
        # Where every pixel has a class of its own a pooled feature has none, and all of the source is one class.
        labels = y if y.dim() == 1 else torch.zeros(len(features), dtype=torch.int64)
        means, self.whitening = class_gaussians(features, labels)
        self.centres = means @ self.whitening

    @torch.no_grad()
    def look(self, x: Any) -> Look:
        if self.whitening is None:
            raise UnseenError(
                "mahalanobis knows no source yet: call fit with labelled batches of it"
            )
        logits, features = self._pass(x)
        white = features.double().cpu() @ self.whitening
        return Look(logits, nearest_squared(white, self.centres).unsqueeze(1).to(features))

    @torch.no_grad()
    def _pass(self, x: Any) -> tuple[Tensor, Tensor]:
        """Logits and the pooled output of the layer, in one pass."""
        features: list[Tensor] = []

        def keep(_: Any, out: Tensor) -> None:
            features.append(pool(out, self.axis))

        model = self.net.model
        ready = laid_out_for(model, inputs(x))
        with evaluating(model), edited(model, {self.layer: keep}):
            logits = model(*ready)
        return logits, features[0]


def class_gaussians(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class means (C, F), and W (F, F) with W W' the inverse of their shared covariance.

    The covariance is shrunk towards a multiple of the identity as far as Ledoit and Wolf (2004) advise, so that fewer samples
    than features, or features that never change, still leave it an inverse.
    """
    from sklearn.covariance import ledoit_wolf  # scikit-learn takes a second to import

    present, place = labels.unique(return_inverse=True)
    means = torch.stack([features[place == c].mean(0) for c in range(len(present))])
    covariance, _ = ledoit_wolf((features - means[place]).numpy(), assume_centered=True)
    try:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(covariance)))
        return means, torch.linalg.cholesky(inverse)
    except torch.linalg.LinAlgError:
        raise UnseenError(
            "mahalanobis: the features of this layer are the same for all of the source, or not finite"
        ) from None


def nearest_squared(points: Tensor, centres: Tensor) -> Tensor:
    """Squared distance of each point to the nearest centre, (N, F) and (C, F) -> (N,)."""
    return (
        torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist").amin(1).square()
    )
