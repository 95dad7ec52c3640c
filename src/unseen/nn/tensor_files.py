"""Tensors on disk as safetensors, a format that cannot execute code when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.reading import read_safetensors

FORMAT = {"format": "pt"}  # by which readers of other libraries know tensors of torch


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write named tensors to one file, atomically."""
    write_atomically(path, tensor_bytes(tensors, metadata))


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a file of named tensors."""
    # Clone: tied weights share memory, which safetensors refuses.
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    content = safetensors.torch.save(copies, {**FORMAT, **(metadata or {})})
    return _with_sorted_metadata(content) if metadata else content


def _with_sorted_metadata(content: bytes) -> bytes:
    """Sort the metadata of a file: safetensors writes them in an order that differs each time."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[start:]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read named tensors from one file, on the CPU."""
    try:
        return safetensors.torch.load(read_safetensors(path))
    except (safetensors.SafetensorError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise UnseenError(f"{path} is not a complete safetensors file: {error}") from error


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata that was given with the tensors of a file."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = file.metadata() or {}
            return {name: value for name, value in found.items() if name not in FORMAT}
    except (OSError, safetensors.SafetensorError) as error:
        raise UnseenError(f"{path} is not a complete safetensors file: {error}") from error
