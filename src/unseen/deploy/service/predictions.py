"""Predictions of a pass as JSON values, a dict for each sample."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from unseen.deploy.reductions import Array
from unseen.deploy.seen import LabelKind, Seen
from unseen.deploy.transport import softmax
from unseen.errors import UnseenError

DIGITS = 6  # of numbers in answers


def predictions_of(seen: Seen, labels: LabelKind, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the prediction of each sample with its score."""
    make = {"classes": _classes, "several": _several, "number": _numbers, "map": _maps}[labels]
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused
        rows = make(seen.logits, classes)
    scores = _rounded(seen.scores)
    return [{**row, "score": score} for row, score in zip(rows, scores, strict=True)]


def class_names(classes: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return the names, or numbers where there are none."""
    return classes if len(classes) == count else tuple(map(str, range(count)))


def _classes(logits: Array, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    probabilities = softmax(logits.reshape(len(logits), -1).astype(np.float64))
    names = class_names(classes, probabilities.shape[1])
    best = probabilities.argmax(1).tolist()
    return [
        {"prediction": names[k], "index": k, "probability": row[k], "probabilities": row}
        for k, row in zip(best, _rounded(probabilities), strict=True)
    ]


def _several(logits: Array, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    probabilities = 1 / (1 + np.exp(-logits.reshape(len(logits), -1).astype(np.float64)))
    names = class_names(classes, probabilities.shape[1])
    return [
        {
            "prediction": [name for name, p in zip(names, row, strict=True) if p >= 0.5],
            "probabilities": row,
        }
        for row in _rounded(probabilities)
    ]


def _numbers(logits: Array, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = _rounded(logits.reshape(len(logits), -1).astype(np.float64))
    return [{"prediction": row[0] if len(row) == 1 else row} for row in rows]


def _maps(logits: Array, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return maps of classes as PNGs, one byte for each pixel."""
    names = class_names(classes, logits.shape[1])
    found = []
    for one in logits.argmax(1).astype(np.uint8):
        file = io.BytesIO()
        Image.fromarray(one).save(file, "PNG")
        shares = np.bincount(one.ravel(), minlength=len(names)) / one.size
        common = names[int(shares.argmax())]
        png = base64.b64encode(file.getvalue()).decode()
        found.append({"prediction": common, "map_png": png, "shares": _rounded(shares)})
    return found


def _rounded(values: Array) -> list[Any]:
    if not np.isfinite(values).all():
        raise UnseenError(
            "the predictions of these samples are not finite: look for very large numbers"
        )
    rounded: list[Any] = np.round(values.astype(np.float64), DIGITS).tolist()
    return rounded
