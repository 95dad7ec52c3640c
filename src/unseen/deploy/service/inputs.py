"""From what a request carries to what the model takes.

Strings of a client never become paths: the reader would open files for them.
"""

from __future__ import annotations

import numpy as np

from unseen.deploy.input_reader import as_input
from unseen.deploy.scorer import Scorer
from unseen.deploy.service.loaded_run import Inputs
from unseen.deploy.service.payloads import Payload
from unseen.deploy.service.problems import invalid
from unseen.errors import UnseenError

TAKES = {
    "images": ("image",),
    "texts": ("text",),
    "arrays": ("image", "sound", "text", "array", "table"),
}


def inputs_of(payload: Payload, scorer: Scorer) -> Inputs:
    """Return the inputs of a request; raise Problem, with the name of the sample, if it fails."""
    reader = scorer.reader
    if reader.modality not in TAKES[payload.kind]:
        raise invalid(f"this run takes {_takes(reader.modality)}, not {payload.kind}")
    contents = payload.contents
    if isinstance(contents, dict):
        sizes = {len(array) for array in contents.values()}
        if len(sizes) > 1:
            raise invalid(f"the inputs have {sorted(sizes)} samples: send the same number of each")
        return {name: as_input(array) for name, array in contents.items()}
    if payload.kind == "arrays" and contents.dtype.kind in "iu" and contents.dtype != np.uint8:
        contents = contents.astype(np.float32) if _takes_floats(scorer) else contents
    samples = []
    for i, item in enumerate(contents):
        name = payload.names[i] if payload.names else f"sample {i}"
        try:
            samples.append(reader.read(item))
        except UnseenError as error:
            text = str(error).replace(f"{item!r} ", "")
            raise invalid(f"{name}: {_without_buffers(text)}") from None
    try:
        return as_input(np.stack(samples))
    except ValueError as error:
        raise invalid(f"the samples cannot be joined: {error}") from None


def _takes(modality: str) -> str:
    return {"image": "images or arrays", "text": "texts", "table": "rows of numbers"}.get(
        modality, "arrays"
    )


def _takes_floats(scorer: Scorer) -> bool:
    known = scorer.calibration.inputs
    return not known or known[0].dtype.startswith("float")


def _without_buffers(text: str) -> str:
    """Return a message of a reader without the address of the buffer that it read."""
    start = text.find("<_io.BytesIO")
    return text if start < 0 else text[:start] + text[text.find(">", start) + 1 :].lstrip()
