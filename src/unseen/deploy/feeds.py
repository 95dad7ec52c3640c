"""Inputs of an exported model, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.deploy.calibration import Input
from unseen.deploy.reductions import Array
from unseen.errors import SampleError, UnseenError

KINDS = {"float32": "f", "float64": "f", "int64": "iu", "int32": "iu", "bool": "b"}


def feeds_of(x: Any, inputs: Sequence[Input], path: Path) -> dict[str, Array]:
    """Return arrays by the names of the graph's inputs, from an array, a tuple or a mapping."""
    names = [i.name for i in inputs]
    wanted = ", ".join(f"{i.name} {describe_input(i)}" for i in inputs)
    if isinstance(x, Mapping):
        missing = [name for name in names if name not in x]
        if missing and len(names) == len(x) == 1:
            x = dict(zip(names, x.values(), strict=True))  # a single input may have any name
        elif missing:
            raise UnseenError(
                f"{path} takes {wanted}; the inputs lack {', '.join(missing)}, they are "
                f"{', '.join(map(str, x)) or 'none'}"
            )
        values = [x[name] for name in names]
    else:
        values = list(x) if isinstance(x, tuple) else [x]
    if len(values) != len(names):
        raise UnseenError(f"{path} takes {wanted}; {len(values)} inputs were given")
    feeds = {i.name: _feed(value, i, path) for i, value in zip(inputs, values, strict=True)}
    sizes = {len(feeds[i.name]) for i in inputs if i.shape[0] is None}
    if len(sizes) > 1:
        raise UnseenError(f"the inputs have {sorted(sizes)} samples: give the same number of each")
    return feeds


def describe_input(i: Input) -> str:
    """Return shape and type of an input, as (N, 3, 32, 32) float32."""
    sizes = ["N" if size is None else str(size) for size in i.shape]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)}) {i.dtype}"


def _feed(value: Any, i: Input, path: Path) -> Array:
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever has __array__ may raise anything
        raise UnseenError(f"{path}, input {i.name}: not an array ({error})") from error
    if array.dtype == np.uint8 and array.ndim == 4 and i.dtype.startswith("float"):
        array = array.astype(i.dtype) / np.asarray(255, i.dtype)  # as unseen does for images
    fits = array.ndim == len(i.shape) and all(
        size is None or size == given for size, given in zip(i.shape, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in KINDS[i.dtype]:
        raise UnseenError(
            f"{path}, input {i.name}: expected {describe_input(i)}, not "
            f"{tuple(array.shape)} {array.dtype}"
        )
    if len(array) == 0:
        raise UnseenError(f"{path}, input {i.name}: needs at least one sample, it is empty")
    array = np.ascontiguousarray(array, i.dtype)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        finite = np.isfinite(array).reshape(len(array), -1).all(1)
        sample = int(np.flatnonzero(~finite)[0])
        raise SampleError(sample, f"the input {i.name} holds NaN or infinity: leave it out")
    return array
