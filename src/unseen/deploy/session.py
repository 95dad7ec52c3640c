"""Open an exported model with onnxruntime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from unseen.checks import check_int
from unseen.deploy.calibration import SIGNAL, Calibration
from unseen.deploy.graph_outputs import keep_outputs
from unseen.errors import UnseenError

ORT_TYPES = {
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    "int64": "tensor(int64)",
    "int32": "tensor(int32)",
    "bool": "tensor(bool)",
}


def open_session(
    path: Path,
    providers: Sequence[str],
    threads: int | None,
    outputs: Collection[str] | None = None,
) -> Any:
    """Return a session of onnxruntime; with `outputs`, of a graph that computes nothing else."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UnseenError(
            f"{path} needs onnxruntime, which is not installed: pip install 'unseen[deploy]', or "
            "pip install onnxruntime"
        ) from error
    if not path.is_file():
        raise UnseenError(f"no file {path}: export a run, `unseen export RUN --out {path.name}`")
    unknown = [name for name in providers if name not in onnxruntime.get_available_providers()]
    if unknown:
        raise UnseenError(
            f"onnxruntime has no {', '.join(unknown)} here; it has "
            f"{', '.join(onnxruntime.get_available_providers())}"
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = check_int("threads", threads, 1)
    try:
        model = str(path) if outputs is None else keep_outputs(path.read_bytes(), outputs)
        return onnxruntime.InferenceSession(model, options, providers=list(providers))
    except Exception as error:  # onnxruntime raises its own types
        raise UnseenError(
            f"{path} is not a readable ONNX model: {_first_line(error)}; export it again"
        ) from error


def check_graph(session: Any, calibration: Calibration, path: Path) -> list[str]:
    """Return the names of the graph's outputs; raise unless it is what the calibration says."""
    types = {i.name: i.type for i in session.get_inputs()}
    expected = {i.name: ORT_TYPES.get(i.dtype) for i in calibration.inputs}
    outputs = [o.name for o in session.get_outputs()]
    needed = ["logits", "score", "features"]
    if calibration.accuracy is not None:
        inside = set(calibration.accuracy.combined.names) - set(calibration.accuracy.transports)
        needed += ["rows", *(f"{SIGNAL}{name}" for name in inside)]
    if types != expected or set(needed) - set(outputs):
        raise UnseenError(
            f"{path}: inputs {', '.join(types)} and outputs {', '.join(outputs)} of the graph do "
            "not fit its calibration: export it again"
        )
    return [name for name in outputs if name in needed]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
