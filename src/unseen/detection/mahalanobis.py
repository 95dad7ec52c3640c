"""Mahalanobis distance to the nearest class of the source.

    score(x) = min over classes c of (f(x) - mu_c)' C^-1 (f(x) - mu_c)

f is the output of one layer, averaged over space (Lee, Lee, Lee and Shin, NeurIPS 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from unseen.detection.detector import Detector, ScoredModel
from unseen.errors import UnseenError
from unseen.functional.pooling import pool
from unseen.functional.scores import nearest_squared_distance
from unseen.nn.batch import Batch
from unseen.nn.hooks import edited, laid_out_for
from unseen.nn.inputs import check_labels, inputs
from unseen.nn.places import channel_axis


class Mahalanobis(Detector):
    """`layer` is the layer to read, by default the first site."""

    name = "mahalanobis"
    summary = "squared distance of a layer's output, pooled over space, to the nearest class mean"
    paper = "Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution, NeurIPS 2018"

    def __init__(self, net: ScoredModel, layer: str | None = None) -> None:
        super().__init__(net)
        if layer is None and not net.sites:
            raise UnseenError(
                "mahalanobis reads the first site, and this model was trained without any: "
                "name sites or a layer"
            )
        self.layer = net.sites[0] if layer is None else layer
        self.axis = channel_axis(net.model, self.layer)
        self.whitening: Tensor | None = None  # (F, F)
        self.centres: Tensor | None = None  # (C, F), whitened

    @property
    def feature_count(self) -> int:
        return 1

    @property
    def _classifies(self) -> bool:
        objective = getattr(self.net, "objective", None)
        return objective is None or bool(objective.classifies)

    def fit(self, source: Iterable[Batch]) -> None:
        pairs = []
        for batch in source:
            logits, features = self._pass(batch.x)
            if self._classifies:
                check_labels(logits, batch.y, getattr(self.net, "ignore_label", -100))
            pairs.append((features.double().cpu(), batch.y.cpu()))
        if not pairs:
            raise UnseenError("mahalanobis needs labelled source data, there is none")
        features, y = torch.cat([f for f, _ in pairs]), torch.cat([y for _, y in pairs])
        # A feature pooled over a label map has no single class: the source is one class then.
        single = y.dim() == 1 and self._classifies
        labels = y if single else torch.zeros(len(features), dtype=torch.int64)
        means, self.whitening = class_gaussians(features, labels)
        self.centres = means @ self.whitening

    @contextmanager
    def watching(self) -> Iterator[list[Tensor]]:
        features: list[Tensor] = []

        def keep(_: Any, out: Tensor) -> None:
            features.append(pool(out, self.axis))

        with edited(self.net.model, {self.layer: keep}):
            yield features

    def features_of(self, logits: Tensor, watched: list[Tensor]) -> Tensor:
        if self.whitening is None or self.centres is None:
            raise UnseenError("mahalanobis is not fitted: call fit with labelled source batches")
        white = watched[0].double().cpu() @ self.whitening
        distances = nearest_squared_distance(white, self.centres)
        return distances.unsqueeze(1).to(watched[0])

    def options(self) -> dict[str, str]:
        return {"layer": self.layer}

    def fitted_state(self) -> dict[str, Tensor]:
        assert self.whitening is not None and self.centres is not None
        return {"whitening": self.whitening, "centres": self.centres}

    def load_fitted_state(self, state: Mapping[str, Tensor]) -> None:
        if set(state) != {"whitening", "centres"}:
            raise UnseenError(
                "must hold whitening and centres beside the source statistics, "
                f"it holds {', '.join(state) or 'nothing'}"
            )
        whitening, centres = state["whitening"], state["centres"]
        width = whitening.shape[-1:]
        square = whitening.dim() == centres.dim() == 2 and whitening.shape[:1] == width
        if not square or centres.shape[1:] != width or not len(centres):
            raise UnseenError(
                f"whitening must be (F, F) and centres (C, F), not {tuple(whitening.shape)} and "
                f"{tuple(centres.shape)}"
            )
        if not all(t.dtype == torch.float64 and t.isfinite().all() for t in state.values()):
            raise UnseenError("whitening and centres must hold finite numbers of float64")
        self.whitening, self.centres = whitening, centres

    def _pass(self, x: Any) -> tuple[Tensor, Tensor]:
        """Return logits and the pooled output of the layer from one pass."""
        ready = laid_out_for(self.net.model, inputs(x))
        with self.watching() as features:
            logits = self.net.predict(ready)
        return logits, features[0]


def hidden_layer(net: ScoredModel) -> str:
    """Return the layer to read where there are no classes: the embedding."""
    if net.embedding is None:
        raise UnseenError(
            "the score reads the last hidden layer, which the first step finds: train the method, "
            'or name the layer, embedding="..."'
        )
    return net.embedding


def class_gaussians(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return class means (C, F) and W (F, F) with W W' the inverse of the shared covariance.

    The covariance is shrunk after Ledoit and Wolf (2004), so that it has an inverse even with fewer
    samples than features or with constant features.
    """
    from sklearn.covariance import ledoit_wolf  # slow to import

    present, index = torch.unique(labels, return_inverse=True)
    means = torch.stack([features[index == c].mean(0) for c in range(len(present))])
    covariance, _ = ledoit_wolf((features - means[index]).numpy(), assume_centered=True)
    try:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(torch.from_numpy(covariance)))
        return means, torch.linalg.cholesky(inverse)
    except torch.linalg.LinAlgError:
        raise UnseenError(
            "mahalanobis: the features of this layer are the same for all source samples, "
            "or not finite"
        ) from None
