"""From what a request carries to what the model takes.

Strings of a client never become paths: the reader would open files for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from unseen.deploy.input_reader import InputReader
from unseen.deploy.reductions import Array
from unseen.deploy.service.payloads import Payload
from unseen.deploy.service.problems import Problem, invalid
from unseen.errors import UnseenError

TAKES = {
    "images": ("image",),
    "texts": ("text",),
    "arrays": ("image", "sound", "text", "array", "table"),
}
NAMES = {"image": "images or arrays", "text": "texts", "table": "rows of numbers"}
BUFFER = re.compile(r"<_io\.BytesIO[^>]*>\s*")  # how a reader names bytes


def inputs_of(payload: Payload, reader: InputReader) -> Array | dict[str, Array]:
    """Return the inputs of a request; raise Problem, with the name of the sample, if it fails."""
    if reader.modality not in TAKES[payload.kind]:
        takes = NAMES.get(reader.modality, "arrays")
        raise invalid(f"this run takes {takes}, not {payload.kind}")
    contents = payload.contents
    if isinstance(contents, dict):
        sizes = {len(array) for array in contents.values()}
        if len(sizes) > 1:
            raise invalid(f"the inputs have {sorted(sizes)} samples: send the same number of each")
        return {name: _single(array) for name, array in contents.items()}
    try:
        return reader.batch(list(contents))
    except (UnseenError, ValueError) as error:
        raise _problem(contents, payload.names, reader, error) from None


def _single(array: Array) -> Array:
    """Return numbers of JSON, which are float64, as models take them."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _problem(
    contents: Sequence[Any], names: Sequence[str], reader: InputReader, error: Exception
) -> Problem:
    for i, item in enumerate(contents):
        try:
            reader.read(item)
        except UnseenError as reason:
            name = names[i] if names else f"sample {i}"
            return invalid(f"{name}: {BUFFER.sub('', str(reason))}")
    return invalid(f"the samples cannot be joined: {error}")
