"""Export of trained methods, and prediction with runs and exported models.

`open_scorer` opens either. `OnnxDetector` needs numpy and onnxruntime alone. What exports needs
torch and is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unseen.deploy.batch_scorer import BatchScorer, merge_sums
from unseen.deploy.onnx_detector import OnnxDetector
from unseen.deploy.scorer import Scorer
from unseen.deploy.scorers import open_scorer
from unseen.deploy.seen import Seen
from unseen.deploy.stream_monitor import StreamMonitor
from unseen.deploy.sums import Sums

if TYPE_CHECKING:
    from unseen.deploy.export import export_onnx, export_program
    from unseen.deploy.run_scorer import RunScorer

_PLACES = {"export_onnx": "export", "export_program": "export", "RunScorer": "run_scorer"}

__all__ = [
    "BatchScorer",
    "OnnxDetector",
    "RunScorer",
    "Scorer",
    "Seen",
    "StreamMonitor",
    "Sums",
    "export_onnx",
    "export_program",
    "merge_sums",
    "open_scorer",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"unseen.deploy.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
