"""The file of an accuracy estimator: numbers in safetensors, names in its metadata."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseen.detection.combined import Combined
from unseen.detection.null_accuracy import RATES, SIZES, NullAccuracy
from unseen.detection.one_pass import OnePass
from unseen.detection.source_statistics import SourceStatistics
from unseen.errors import UnseenError
from unseen.functional.accuracy_curve import Curve
from unseen.nn.tensor_files import read_metadata, read_tensors, tensor_bytes

FORMAT = 5  # raise it with every change of the file or of the shifts
ARRAYS = tuple(f.name for f in fields(Combined) if f.name not in ("names", "curves", "reach"))


def estimator_bytes(estimator: Any) -> bytes:
    """Return the content of the file of an AccuracyEstimator."""
    one_pass, combined = estimator.one_pass, estimator.combined
    tensors: dict[str, Tensor] = {
        f"combined/{name}": torch.from_numpy(np.array(getattr(combined, name))) for name in ARRAYS
    }
    for name, curve in zip(combined.names, combined.curves, strict=True):
        tensors[f"curve/{name}"] = torch.from_numpy(np.stack([curve.scores, curve.accuracies]))
    for name, detector in one_pass.signals.items():
        for key, value in detector.fitted_state().items():
            tensors[f"signal/{name}/{key}"] = value
        if detector.reads_learned_noise:
            tensors[f"signal/{name}/mean"] = detector.calibrated().mean
    tensors["null"] = torch.from_numpy(estimator.null.quantiles)
    about = {
        "format": FORMAT,
        "signals": list(combined.names),
        "reach": combined.reach,
        "source_accuracy": estimator.source_accuracy,
        "classes": estimator.classes,
        "samples": estimator.samples,
        "shifts": estimator.shifts,
        "model": estimator.weights,
    }
    return tensor_bytes(tensors, {"unseen": json.dumps(about)})


def read_estimator(path: Path, net: Any) -> dict[str, Any]:
    """Read the fields of an AccuracyEstimator for a method with the same weights."""
    tensors = read_tensors(path)
    try:
        about = json.loads(read_metadata(path).get("unseen", "{}"))
        if about.get("format") != FORMAT:
            raise UnseenError(f"{path} is not an accuracy estimator of this version: fit it again")
        if about["model"] != digest_of(net.model):
            raise UnseenError(f"{path} was fitted with other weights: fit it again")
        one_pass = OnePass(net, int(about["classes"]))
        if list(one_pass.signals) != about["signals"]:
            raise UnseenError(f"{path} was fitted with other signals: fit it again")
        if not all(t.isfinite().all() for t in tensors.values()):
            raise UnseenError(f"{path} holds numbers that are not finite: fit it again")
        _restore_signals(one_pass, tensors)
        combined = _read_combined(about, tensors)
        quantiles = tensors["null"].numpy()
        if quantiles.shape != (len(SIZES), len(RATES)):
            raise ValueError(f"null must be {(len(SIZES), len(RATES))}, not {quantiles.shape}")
        return {
            "one_pass": one_pass,
            "combined": combined,
            "null": NullAccuracy(quantiles),
            "source_accuracy": _fraction(about["source_accuracy"]),
            "classes": int(about["classes"]),
            "samples": int(about["samples"]),
            "shifts": int(about["shifts"]),
            "weights": str(about["model"]),
        }
    except (KeyError, TypeError, ValueError, IndexError, RecursionError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnseenError(f"{path} is not an accuracy estimator: {reason}; fit it again") from error


def digest_of(model: nn.Module) -> str:
    """Return a digest of a model's weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


def _restore_signals(one_pass: OnePass, tensors: dict[str, Tensor]) -> None:
    for name, detector in one_pass.signals.items():
        prefix = f"signal/{name}/"
        state = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        if detector.reads_learned_noise:
            mean = state.pop("mean")
            detector.statistics = SourceStatistics(mean, mean.new_empty(0, len(mean)))
        detector.load_fitted_state(state)


def _read_combined(about: dict[str, Any], tensors: dict[str, Tensor]) -> Combined:
    arrays = {name: tensors[f"combined/{name}"].numpy() for name in ARRAYS}
    names = tuple(map(str, about["signals"]))
    curves = [Curve(*tensors[f"curve/{name}"].numpy()) for name in names]
    parts = len(names) + len(arrays["direct"])
    shapes = {
        "weights": (parts,),
        "offsets": (parts,),
        "places": (len(arrays["places"]), len(names)),
        "centre": (len(names),),
        "spread": (len(names),),
        "errors": arrays["predicted"].shape,
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape or 0 in shape:
            raise ValueError(f"{name} must be {shape}, not {arrays[name].shape}")
    return Combined(names=names, curves=curves, reach=float(about["reach"]), **arrays)


def _fraction(value: Any) -> float:
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"source_accuracy must lie in 0..1, not {number}")
    return number
