"""Base of the detectors that are fitted to the logits and labels of held-out source data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.detection.detector import Detector
from unseen.errors import UnseenError
from unseen.functional.pixels import sampled_labels, sampled_rows
from unseen.nn.batch import Batch


class ConfidenceDetector(Detector):
    """Reads the logits alone. Write `fit_to` and `row_features`.

    Of a map of logits, evenly spaced pixels are read; a sample's features are their mean.
    """

    numbers: ClassVar[tuple[str, ...]] = ()  # the attributes that `fit_to` sets, floats or tensors

    @abstractmethod
    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        """Fit to logits (M, C) and labels (M,) of the source."""

    @abstractmethod
    def row_features(self, rows: Tensor) -> Tensor:
        """Return features of logits, (M, C) -> (M, F)."""

    def accuracy(self, score: float) -> float | None:
        """Return the accuracy that the paper's estimator states for a score; None if none does."""
        return None

    def fit(self, source: Iterable[Batch]) -> None:
        ignore = getattr(self.net, "ignore_label", -100)
        pairs = [(self.net.predict(batch.x).cpu(), batch.y.cpu()) for batch in source]
        if not pairs:
            raise UnseenError(f"{self.name} needs labelled source data, there is none")
        logits, labels = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        self.fit_to(*labelled_rows(logits, sampled_labels(labels), ignore))

    def features_of(self, logits: Tensor, watched: Any) -> Tensor:
        self.check_fitted()
        rows = sampled_rows(logits)
        features = self.row_features(rows.flatten(0, 1))
        return features.reshape(*rows.shape[:2], features.shape[1]).mean(1)

    @property
    def is_fitted(self) -> bool:
        return all(hasattr(self, name) for name in self.numbers)

    def check_fitted(self) -> None:
        """Raise unless `fit` has been called."""
        if not self.is_fitted:
            raise UnseenError(f"{self.name} is not fitted: call fit with labelled source batches")

    def fitted_state(self) -> dict[str, Tensor]:
        values = {name: getattr(self, name) for name in self.numbers}
        return {
            name: v.double() if isinstance(v, Tensor) else torch.tensor(v, dtype=torch.float64)
            for name, v in values.items()
        }

    def load_fitted_state(self, state: Mapping[str, Tensor]) -> None:
        if set(state) != set(self.numbers) or not all(t.isfinite().all() for t in state.values()):
            raise UnseenError(
                f"{self.name} must hold finite numbers {', '.join(self.numbers) or '(none)'}, "
                f"it holds {', '.join(state) or 'nothing'}"
            )
        for name, value in state.items():
            setattr(self, name, float(value) if value.dim() == 0 else value)


def labelled_rows(logits: Tensor, labels: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """Return logits (M, C) and labels (M,) that are not ignored, from the pixels that are read."""
    rows, targets = sampled_rows(logits).flatten(0, 1), labels.flatten()
    counted = targets != ignore
    if not counted.any():
        raise UnseenError(f"every label of these samples is the ignored one ({ignore})")
    return rows[counted], targets[counted]


def accuracy_of_rows(rows: Tensor, labels: Tensor) -> float:
    """Return the fraction of rows whose largest logit is that of the label."""
    return float((rows.argmax(1) == labels).double().mean())
