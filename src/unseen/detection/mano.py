"""MaNo: a matrix norm of normalized logits."""

from __future__ import annotations

from torch import Tensor

from unseen.detection.confidence_detector import ConfidenceDetector
from unseen.functional import matrix_norms


class MaNo(ConfidenceDetector):
    """With the polynomial normalization, which the paper takes where softmax is overconfident."""

    name = "mano"
    summary = "1 - the scaled L4 norm of the matrix of normalized logits"
    paper = (
        "Xie et al., MaNo: Exploiting Matrix Norm for Unsupervised Accuracy Estimation Under "
        "Distribution Shifts, NeurIPS 2024"
    )

    def fit_to(self, rows: Tensor, labels: Tensor) -> None:
        """Nothing to fit."""

    def row_features(self, rows: Tensor) -> Tensor:
        return matrix_norms.mano_moments(rows, exponential=False)

    def reduce(self, features: Tensor) -> Tensor:
        return 1 - matrix_norms.mano(features)
