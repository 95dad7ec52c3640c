"""What an exported model knows of its source: the content of the file's `metadata_props`.

Two entries: "unseen", JSON that a person or another language can read, and "unseen.arrays", JSON of
arrays in base64. Reading them runs no code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from unseen.deploy.reductions import Array, Kind, Reduction
from unseen.deploy.seen import LabelKind
from unseen.deploy.transport import Transport
from unseen.errors import UnseenError
from unseen.functional.accuracy_curve import Curve
from unseen.functional.accuracy_model import DIRECT, RATES, SIZES, Combined, NullAccuracy

FORMAT = 1  # raise it with every change of the metadata or of the graph's outputs
ABOUT, ARRAYS = "unseen", "unseen.arrays"  # keys in metadata_props
CHECKSUM = "unseen.sha256"  # of both, without it in files of older versions
DTYPES = ("float32", "float64", "int64")
SIGNAL = "signal."  # prefix of the outputs that the accuracy is estimated from
COTT = "cott"  # the signal of transport that has a threshold
INPUT_DTYPES = ("float32", "float64", "int64", "int32", "bool")


@dataclass(frozen=True)
class Input:
    """An input of the graph."""

    name: str
    shape: tuple[int | None, ...]  # None: the batch
    dtype: str


@dataclass(frozen=True)
class AccuracyNumbers:
    """The numbers of an accuracy estimator."""

    combined: Combined
    null: NullAccuracy
    source_accuracy: float
    classes: int
    reductions: dict[str, Reduction]  # by signal
    transports: dict[str, Transport]


@dataclass(frozen=True)
class Calibration:
    """Statistics of the source, thresholds and the accuracy estimator of an exported model."""

    detector: str
    reduction: Reduction
    held_out: Array  # (N, F)
    inputs: tuple[Input, ...]
    classes: tuple[str, ...]
    accuracy: AccuracyNumbers | None
    # Version, task, method, preprocessing, a table of thresholds: for people and other languages.
    more: dict[str, Any] = field(default_factory=dict)

    def to_metadata(self) -> dict[str, str]:
        """Return the entries of metadata_props."""
        arrays = {"held_out": self.held_out}
        if self.reduction.source_mean is not None:
            arrays["mean"] = self.reduction.source_mean
        about: dict[str, Any] = {
            "format": FORMAT,
            **self.more,
            "detector": self.detector,
            "reduction": self.reduction.kind,
            "inputs": [vars(i) for i in self.inputs],
            "classes": list(self.classes),
            "accuracy": None,
        }
        if self.accuracy is not None:
            about["accuracy"] = _accuracy_about(self.accuracy)
            arrays |= _accuracy_arrays(self.accuracy)
        packed = {name: _pack(array) for name, array in arrays.items()}
        entries = {ABOUT: json.dumps(about), ARRAYS: json.dumps(packed)}
        return {**entries, CHECKSUM: checksum_of(entries)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], place: str) -> Calibration:
        """Read metadata_props; an error begins with the place, the name of the file."""
        if ABOUT not in metadata or ARRAYS not in metadata:
            raise UnseenError(
                f"{place} has no calibration of unseen in its metadata: export it with "
                "`unseen export RUN --out model.onnx`"
            )
        try:
            about = json.loads(metadata[ABOUT])
            if about.get("format") != FORMAT:
                raise UnseenError(
                    f"{place} has format {about.get('format')}, this version reads {FORMAT}: "
                    "export it again"
                )
            if metadata.get(CHECKSUM, checksum := checksum_of(metadata)) != checksum:
                raise ValueError("its checksum is another")
            arrays = {n: _unpack(n, a) for n, a in json.loads(metadata[ARRAYS]).items()}
            return _calibration_of(about, arrays)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UnseenError(
                f"the calibration in {place} is damaged ({reason}): export it again"
            ) from error


def checksum_of(metadata: Mapping[str, str]) -> str:
    """Return a digest of the entries, so that a changed number is noticed."""
    return hashlib.sha256(f"{metadata[ABOUT]}\n{metadata[ARRAYS]}".encode()).hexdigest()


def _calibration_of(about: dict[str, Any], arrays: dict[str, Array]) -> Calibration:
    held_out, reduction = arrays["held_out"], _reduction(about["reduction"], arrays.get("mean"))
    if held_out.ndim != 2 or not len(held_out):
        raise ValueError(f"held_out must be (N, F) with N > 0, not {held_out.shape}")
    _check_width(reduction, held_out.shape[1], "mean")
    inputs = tuple(
        Input(str(i["name"]), tuple(None if d is None else int(d) for d in i["shape"]), i["dtype"])
        for i in about["inputs"]
    )
    if not inputs or any(i.dtype not in INPUT_DTYPES for i in inputs):
        raise ValueError("inputs need names, shapes and types")
    if about.get("labels", "classes") not in (*get_args(LabelKind),):
        raise ValueError(f"unknown labels {about['labels']!r}")
    known = ("format", "detector", "reduction", "inputs", "classes", "accuracy")
    return Calibration(
        detector=str(about["detector"]),
        reduction=reduction,
        held_out=held_out,
        inputs=inputs,
        classes=tuple(map(str, about["classes"])),
        accuracy=None if about["accuracy"] is None else _accuracy(about["accuracy"], arrays),
        more={name: value for name, value in about.items() if name not in known},
    )


def _accuracy_about(accuracy: AccuracyNumbers) -> dict[str, Any]:
    return {
        "signals": list(accuracy.combined.names),
        "reductions": {name: r.kind for name, r in accuracy.reductions.items()},
        "transports": {
            name: {"temperature": t.temperature, "threshold": t.threshold}
            for name, t in accuracy.transports.items()
        },
        "reach": accuracy.combined.reach,
        "source_accuracy": accuracy.source_accuracy,
        "classes": accuracy.classes,
    }


COMBINED = ("weights", "offsets", "predicted", "errors", "places", "centre", "spread", "direct")


def _accuracy_arrays(accuracy: AccuracyNumbers) -> dict[str, Array]:
    combined = accuracy.combined
    arrays = {f"combined/{name}": getattr(combined, name) for name in (*COMBINED, "doc")}
    for name, curve in zip(combined.names, combined.curves, strict=True):
        arrays[f"curve/{name}"] = np.stack([curve.scores, curve.accuracies])
    for name, reduction in accuracy.reductions.items():
        if reduction.source_mean is not None:
            arrays[f"mean/{name}"] = reduction.source_mean
    for name, transport in accuracy.transports.items():
        arrays[f"marginal/{name}"] = transport.marginal
    arrays["null"] = accuracy.null.quantiles
    return arrays


def _accuracy(about: dict[str, Any], arrays: dict[str, Array]) -> AccuracyNumbers:
    names = tuple(map(str, about["signals"]))
    if missing := {"doc", *DIRECT} - set(names):
        raise ValueError(f"the signals lack {', '.join(sorted(missing))}")
    if arrays["null"].shape != (len(SIZES), len(RATES)):
        raise ValueError(f"null must be {(len(SIZES), len(RATES))}, not {arrays['null'].shape}")
    parts, signals = len(names) + len(DIRECT), len(names)
    fitted = {name: arrays[f"combined/{name}"] for name in (*COMBINED, "doc")}
    shapes = {
        "weights": (parts,),
        "offsets": (parts,),
        "places": (len(fitted["places"]), signals),
        "centre": (signals,),
        "spread": (signals,),
        "errors": fitted["predicted"].shape,
        "direct": (len(DIRECT), 2),
        "doc": (2,),
    }
    for name, shape in shapes.items():
        if fitted[name].shape != shape or 0 in shape:
            raise ValueError(f"{name} must be {shape}, not {fitted[name].shape}")
    reach, source_accuracy = float(about["reach"]), float(about["source_accuracy"])
    if not (reach > 0 and math.isfinite(reach) and 0 <= source_accuracy <= 1):
        raise ValueError("reach must be above 0 and source_accuracy in 0..1")
    curves = [Curve(*arrays[f"curve/{name}"]) for name in names]
    transports = {
        str(name): Transport(
            float(t["temperature"]),
            arrays[f"marginal/{name}"],
            None if t["threshold"] is None else float(t["threshold"]),
        )
        for name, t in about["transports"].items()
    }
    for name, transport in transports.items():
        if (transport.threshold is None) == (name == COTT):
            raise ValueError(f"{name} has the threshold {transport.threshold}")
    kinds = about["reductions"]
    return AccuracyNumbers(
        combined=Combined(names=names, curves=curves, reach=reach, **fitted),
        null=NullAccuracy(arrays["null"]),
        source_accuracy=source_accuracy,
        classes=int(about["classes"]),
        reductions={n: _reduction(kinds[n], arrays.get(f"mean/{n}")) for n in names},
        transports=transports,
    )


def _reduction(kind: Any, mean: Array | None) -> Reduction:
    if kind not in get_args(Kind):
        raise ValueError(f"unknown reduction {kind!r}")
    if kind == "relative_deviation" and mean is None:
        raise ValueError("a relative deviation needs the mean of the source")
    return Reduction(kind, mean if kind == "relative_deviation" else None)


def _check_width(reduction: Reduction, width: int, name: str) -> None:
    mean = reduction.source_mean
    if mean is not None and mean.shape != (width,):
        raise ValueError(f"{name} must be ({width},), not {mean.shape}")


def _pack(array: Array) -> dict[str, Any]:
    data = np.ascontiguousarray(array)
    text = base64.b64encode(data.astype(data.dtype.newbyteorder("<")).tobytes()).decode()
    return {"dtype": str(data.dtype), "shape": list(data.shape), "data": text}


def _unpack(name: str, packed: dict[str, Any]) -> Array:
    if packed["dtype"] not in DTYPES:
        raise ValueError(f"{name} has dtype {packed['dtype']}")
    data = base64.b64decode(packed["data"], validate=True)
    little = np.frombuffer(data, np.dtype(packed["dtype"]).newbyteorder("<"))
    array = little.astype(packed["dtype"]).reshape(packed["shape"])
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return array
