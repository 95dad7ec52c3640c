"""The last inputs of a run, for the page. They are kept in memory only."""

from __future__ import annotations

import base64
import io
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from unseen.deploy.reductions import Array

SIDE = 96  # pixels of a picture
TEXT = 280  # characters
VALUES = 64  # numbers of an array that are drawn
SPACING = 0.1  # seconds; under load, most inputs are skipped


@dataclass
class Shown:
    """One input with its prediction."""

    number: int
    time: float
    domain: str
    prediction: Any
    probability: float | None
    score: float
    content: Array | str | dict[str, Any]  # the sample; its picture when the page has asked for it


class Recent:
    """Keeps some of the last inputs."""

    def __init__(self, most: int) -> None:
        self.shown: deque[Shown] = deque(maxlen=most)
        self.most, self.number, self._next = most, 0, 0.0

    def wants_more(self) -> bool:
        """Return whether the next input will be kept."""
        return self.most > 0 and time.monotonic() >= self._next

    def add(self, domain: str, prediction: dict[str, Any], sample: Array | str) -> None:
        """Keep an input."""
        self._next = time.monotonic() + SPACING
        self.number += 1
        self.shown.append(
            Shown(
                self.number,
                time.time(),
                domain,
                prediction["prediction"],
                prediction.get("probability"),
                prediction["score"],
                sample[: 2 * TEXT] if isinstance(sample, str) else np.array(sample),
            )
        )

    def as_list(self) -> list[dict[str, Any]]:
        """Return the inputs as JSON values, the last one first."""
        found = []
        for one in reversed(list(self.shown)):
            content = one.content  # read once: requests for the page may run at the same time
            if not isinstance(content, dict):
                content = one.content = picture_of(content)
            about = ("number", "time", "domain", "prediction", "probability", "score")
            found.append({**{name: getattr(one, name) for name in about}, **content})
        return found


def picture_of(sample: Array | str) -> dict[str, Any]:
    """Return an image, the begin of a text, or the first numbers of an array."""
    if isinstance(sample, str):
        return {"text": sample[:TEXT] + ("…" if len(sample) > TEXT else "")}
    if sample.ndim == 3 and sample.shape[0] in (1, 3) and min(sample.shape[1:]) > 1:
        return {"image": _png(sample)}
    if sample.ndim == 2 and min(sample.shape) > 1:
        return {"image": _png(sample[None])}
    values = sample.ravel()[:VALUES].astype(np.float64)
    return {"values": np.round(values, 4).tolist(), "shape": list(sample.shape)}


def _png(sample: Array) -> str:
    """Return a small PNG; floats are scaled from their least to their largest value."""
    values: Array = sample.astype(np.float32)
    if sample.dtype == np.uint8:
        values = values / 255
    else:
        low, high = float(values.min()), float(values.max())
        if low < 0 or high > 1:
            values = (values - low) / max(high - low, 1e-12)
    pixels = np.round(255 * values).astype(np.uint8).transpose(1, 2, 0)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
