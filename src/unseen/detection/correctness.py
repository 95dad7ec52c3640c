"""Probability that a prediction is correct, from its confidence and the learned noise.

A logistic regression over the highest probability, the margin to the second, the entropy, the free
energy, and the noise scores of the sample. It is fitted to held-out source data and to synthetic
shifts of them, which also tell how many of these inputs serve: scores that grow with the shift of a
domain need not tell its right predictions from its wrong ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.errors import UnseenError
from unseen.functional.scores import energy, entropy

SOURCE_SHARE = 0.3  # of the weight in the fit; the rest is shared by the shifts
LEAST = 1e-6
CONFIDENCE = 4  # inputs from the logits; those of the learned noise follow


class Correctness(ConfidenceDetector):
    name = "correctness"
    summary = "1 - the probability of a correct prediction, by logistic regression"
    paper = "ours; Platt, Probabilistic Outputs for Support Vector Machines, 1999, for the form"
    numbers: ClassVar[tuple[str, ...]] = ("temperature", "weight", "bias")

    temperature: float
    weight: Tensor  # (inputs,)
    bias: float

    def __init__(self, net: object, noise: Sequence[str] = ()) -> None:
        super().__init__(net)  # type: ignore[arg-type]
        self.noise = tuple(noise)  # names of the detectors whose scores it reads

    def inputs_of(self, rows: Tensor, scores: Tensor) -> Tensor:
        """Return the inputs of the regression, logits (M, C) and scores (M, S) -> (M, 4 + S)."""
        scaled = rows.double() / _exact(self.temperature, rows)
        best = scaled.softmax(1).topk(min(2, rows.shape[1]), dim=1).values
        first, margin = best[:, 0], best[:, 0] - best[:, -1]
        low, high = _exact(LEAST, rows), _exact(1 - LEAST, rows)
        parts = [
            first.clamp(low, high).logit(),
            (margin + 1e-3).log(),
            entropy(scaled),
            -energy(rows.double()),
        ]
        noise = scores.double().clamp_min(LEAST).log()
        return torch.cat([torch.stack(parts, 1), noise], 1)

    @property
    def input_counts(self) -> tuple[int, ...]:
        """How many of the inputs may be used: the first, those of the logits, or all."""
        return tuple(sorted({1, CONFIDENCE, CONFIDENCE + len(self.noise)}))

    def fit_inputs(
        self, inputs: Tensor, correct: Tensor, weights: Tensor, count: int | None = None
    ) -> None:
        """Fit the regression to inputs (M, I), whether the predictions are correct, and weights.

        Args:
            count: the number of inputs that are used; the others have no weight.
        """
        from sklearn.linear_model import LogisticRegression  # slow to import
        from threadpoolctl import threadpool_limits  # scikit-learn depends on it

        self.weight, self.bias = torch.zeros(inputs.shape[1], dtype=torch.float64), 0.0
        centre, spread = inputs.mean(0), inputs.std(0).clamp_min(1e-9)
        if correct.all() or not correct.any():  # nothing to tell apart
            self.bias = 20.0 if bool(correct.all()) else -20.0
            return
        x = ((inputs - centre) / spread)[:, :count].numpy()
        with threadpool_limits(1, user_api="blas"):  # a sixth of the time for so few columns
            model = LogisticRegression(max_iter=300).fit(x, correct.numpy(), weights.numpy())
        coefficients = torch.from_numpy(np.asarray(model.coef_[0], dtype=np.float64))
        self.weight[: len(coefficients)] = coefficients / spread[:count]
        self.bias = float(model.intercept_[0]) - float(self.weight @ centre)

    def probability(self, inputs: Tensor) -> Tensor:
        """Return the probability of a correct prediction, (M, I) -> (M,)."""
        return (inputs.to(self.weight) @ self.weight + _exact(self.bias, self.weight)).sigmoid()

    def rows_of(self, rows: Tensor, scores: Tensor) -> Tensor:
        """Return the inputs of every pixel, (N, P, C) and (N, S) -> (N * P, 4 + S)."""
        return self.inputs_of(rows.flatten(0, 1), scores.repeat_interleave(rows.shape[1], 0))

    def from_rows(self, rows: Tensor, scores: Tensor) -> Tensor:
        """Return 1 - the mean probability over the pixels of each sample, (N, 1)."""
        self.check_fitted()
        probability = self.probability(self.rows_of(rows, scores))
        return 1 - probability.reshape(rows.shape[:2]).mean(1, keepdim=True)

    def accuracy(self, score: float) -> float | None:
        return 1 - score

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        raise UnseenError("correctness is fitted by AccuracyEstimator.fit")

    def row_features(self, rows: Tensor) -> Tensor:
        raise UnseenError("correctness needs the noise scores: use AccuracyEstimator")

    def load_fitted_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_fitted_state(state)
        if self.weight.shape != (CONFIDENCE + len(self.noise),):
            raise UnseenError(
                f"correctness: weight must have {CONFIDENCE + len(self.noise)} numbers"
            )


def _exact(value: float, like: Tensor) -> Tensor:
    """Return a number as a tensor of float64: an exported graph rounds plain ones to float32."""
    return torch.tensor([value], dtype=torch.float64, device=like.device)
