"""What an accuracy estimate needs of a set of samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseen.detection.detector import Detector
from unseen.errors import UnseenError
from unseen.functional.confidence import negative_entropy
from unseen.functional.scores import max_softmax, mean_over_pixels
from unseen.nn.batch import inference_batch_size
from unseen.nn.inputs import check_labels


class Observation(NamedTuple):
    """Features and confidences of N samples of one domain."""

    features: Tensor  # (N, F)
    uncertainty: Tensor  # (N, 1): 1 - the highest class probability
    confidence: Tensor  # (M,): negative entropy of samples, or of their pixels
    correct: Tensor  # (M,) bool; empty without labels
    classes: int


@torch.no_grad()
def observe(
    detector: Detector, x: tuple[Tensor, ...], y: Tensor | None = None, ignore: int = -100
) -> Observation:
    """Pass samples of one domain through the model, in batches that fit into memory."""
    if len(x[0]) == 0:
        raise UnseenError("an accuracy estimate needs at least one sample, x is empty")
    size = inference_batch_size(x)
    features, uncertainty, confidence, correct = [], [], [], []
    for start in range(0, len(x[0]), size):
        look = detector.look(tuple(t[start : start + size] for t in x))
        logits = look.logits.cpu()
        features.append(look.features.cpu())
        uncertainty.append(mean_over_pixels(max_softmax(logits)))
        counted = torch.ones_like(logits[:, 0], dtype=torch.bool)
        if y is not None:
            labels = y[start : start + size].cpu()
            check_labels(logits, labels, ignore)
            counted = labels != ignore
            correct.append((logits.argmax(1) == labels)[counted])
        confidence.append(negative_entropy(logits)[counted].double())
    correct_all = torch.cat(correct) if correct else torch.empty(0, dtype=torch.bool)
    if y is not None and correct_all.numel() == 0:
        raise UnseenError(f"every label of these samples is the ignored one ({ignore})")
    return Observation(
        torch.cat(features),
        torch.cat(uncertainty),
        torch.cat(confidence),
        correct_all,
        logits.shape[1],
    )
