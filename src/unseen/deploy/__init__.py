"""Export of trained methods, and prediction with exported models.

`OnnxDetector` needs numpy and onnxruntime alone. What exports needs torch and is imported when it
is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unseen.deploy.onnx_detector import OnnxDetector

if TYPE_CHECKING:
    from unseen.deploy.export import export_onnx, export_program

__all__ = ["OnnxDetector", "export_onnx", "export_program"]


def __getattr__(name: str) -> Any:
    if name in ("export_onnx", "export_program"):
        return getattr(importlib.import_module("unseen.deploy.export"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
