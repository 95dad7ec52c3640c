"""The file of a monitor."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from unseen.checks import LARGEST_INT
from unseen.detection.one_pass import Moments
from unseen.errors import UnseenError
from unseen.nn.tensor_files import read_tensors, write_tensors

NUMBERS = ("decay", "false_alarm_rate", "seen", "weight", "squares", "history")
COUNTS = ("samples", "alarms")
KEYS = {"numbers", "sizes", "thresholds", "sum", "source_mean"}
MOMENTS = "moments/"  # prefix, with an accuracy estimator
KEYS_SINCE_0_2 = {"counts", "total"}
INTEGERS = ("sizes", "counts")  # int64; all others are float64


@dataclass
class MonitorState:
    """What is saved of a monitor."""

    decay: float
    false_alarm_rate: float
    seen: int
    weight: float
    squares: float
    history: int
    samples: int
    alarms: int
    thresholds: dict[int, float]
    sum: Tensor  # (F,)
    total: Tensor  # (F,)
    source_mean: Tensor  # (F,)
    moments: dict[str, Moments] = field(default_factory=dict)  # of signals, by name


def write_monitor(path: Path, state: MonitorState) -> None:
    """Write the state to a .safetensors file."""
    numbers = [float(getattr(state, name)) for name in NUMBERS]
    tensors = {
        "numbers": torch.tensor(numbers, dtype=torch.float64),
        "sizes": torch.tensor(list(state.thresholds)),
        "thresholds": torch.tensor(list(state.thresholds.values()), dtype=torch.float64),
        "sum": state.sum,
        "source_mean": state.source_mean,
        "counts": torch.tensor([getattr(state, name) for name in COUNTS]),
        "total": state.total,
    }
    for name, moments in state.moments.items():
        count = torch.tensor([float(moments.n)], dtype=torch.float64)
        rows = [moments.mean, moments.variance, count.expand(len(moments.mean))]
        tensors[f"{MOMENTS}{name}"] = torch.stack(rows)
    write_tensors(path, tensors)


def read_monitor(path: Path, source_mean: Tensor) -> MonitorState:
    """Read a state and check that it belongs to a detector with this mean of the source."""
    tensors = read_tensors(path)
    moments = {
        key.removeprefix(MOMENTS): tensors.pop(key) for key in [*tensors] if key.startswith(MOMENTS)
    }
    if set(tensors) not in (KEYS, KEYS | KEYS_SINCE_0_2) or tensors["numbers"].shape != (6,):
        raise UnseenError(f"{path} is not a saved monitor: it holds {', '.join(tensors)}")
    for name, tensor in tensors.items():
        kind = torch.int64 if name in INTEGERS else torch.float64
        if tensor.dtype != kind:
            raise UnseenError(f"{path} is a damaged monitor: {name} is {tensor.dtype}, not {kind}")
    tensors.setdefault("counts", torch.zeros(len(COUNTS), dtype=torch.int64))
    tensors.setdefault("total", torch.zeros_like(tensors["sum"]))
    saved_mean = tensors["source_mean"]
    if saved_mean.shape != source_mean.shape or not torch.allclose(saved_mean, source_mean):
        raise UnseenError(
            f"{path} was saved with another method: its source statistics are different"
        )
    if not (_is_sound(tensors) and all(map(_are_moments, moments.values()))):
        raise UnseenError(f"{path} is a damaged monitor: its numbers are invalid; make a new one")
    decay, rate, seen, weight, squares, history = tensors["numbers"].tolist()
    samples, alarms = tensors["counts"].tolist()
    sizes, thresholds = tensors["sizes"].tolist(), tensors["thresholds"].tolist()
    return MonitorState(
        decay=decay,
        false_alarm_rate=rate,
        seen=int(seen),
        weight=weight,
        squares=squares,
        history=int(history),
        samples=samples,
        alarms=alarms,
        thresholds=dict(zip(sizes, thresholds, strict=True)),
        sum=tensors["sum"],
        total=tensors["total"],
        source_mean=saved_mean,
        moments={name: Moments(int(t[2, 0]), t[0], t[1]) for name, t in moments.items()},
    )


def _are_moments(t: Tensor) -> bool:
    shaped = t.dim() == 2 and t.shape[0] == 3 and t.shape[1] > 0 and t.dtype == torch.float64
    return shaped and bool(t.isfinite().all()) and bool((t[1:] >= 0).all())


def _is_sound(tensors: dict[str, Tensor]) -> bool:
    decay, rate, seen, weight, squares, history = tensors["numbers"].tolist()
    sizes, shape = tensors["sizes"].tolist(), tensors["source_mean"].shape
    return (
        all(bool(t.isfinite().all()) for t in tensors.values())
        and tensors["sum"].shape == tensors["total"].shape == shape
        and tensors["counts"].shape == (len(COUNTS),)
        and int(tensors["counts"].min()) >= 0
        and tensors["thresholds"].shape == tensors["sizes"].shape == (len(sizes),)
        and len(sizes) > 0
        and sizes == sorted(set(sizes))
        and 0 <= decay < 1
        and 0 < rate < 1
        and 0 <= seen <= LARGEST_INT
        and min(weight, squares) >= 0
        and 1 <= history <= LARGEST_INT
        and sizes[0] >= 1
    )
