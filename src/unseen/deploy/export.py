"""Export a trained method: one graph with logits and score, and the calibration in its metadata."""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.api import Method
from unseen.checks import check_path, check_type
from unseen.deploy.calibrate_export import calibration_of
from unseen.deploy.calibration import INPUT_DTYPES, Calibration, Input
from unseen.deploy.scored_module import ScoredModule
from unseen.detection.accuracy import AccuracyEstimator
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.nn.calls import bind
from unseen.nn.hooks import evaluating
from unseen.nn.inputs import Inputs, inputs, take_rows

log = logging.getLogger("unseen")

TRACED = 3  # samples in the traced batch: sizes 0 and 1 are special to torch.export
CHECKED = (1, 5)  # batch sizes at which the graph is compared with torch
TOLERANCE = 1e-4  # of that comparison, relative to the largest number
# A threshold on confidence may be crossed by rounding; a logarithm of a small score enlarges it.
LOOSE = {"signal.atc": 1.0, "signal.correctness": 0.05}
OPSET = 20


def export_onnx(
    net: Method,
    example: Any,
    path: str | PathLike[str],
    *,
    classes: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
    estimator: AccuracyEstimator | None = None,
) -> Calibration:
    """Write a calibrated method as ONNX; `unseen.deploy.OnnxDetector` reads it.

    The outputs are compared with torch before anything is written.

    Args:
        example: a batch of inputs; all sizes but that of the batch are fixed to its sizes.
        classes: names of the classes.
        about: more entries of the metadata, such as the preprocessing.
        estimator: by default that of the method, if it has held-out source data.
    """
    target = check_path("path", path)
    _check_installed("onnx", "onnxscript")
    traced = _trace(net, example, estimator)
    calibration = traced.calibration(classes, about or {})
    with _quiet():
        program = torch.onnx.export(
            traced.program,
            input_names=[i.name for i in traced.inputs],
            output_names=traced.module.output_names,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(calibration.to_metadata())
    program.model.producer_name = "unseen"
    try:
        content = program.model_proto.SerializeToString()
    except ValueError as error:  # protobuf's limit
        raise UnseenError(
            f"{target}: the model is larger than 2 GB, the most ONNX holds"
        ) from error
    _compare(traced, content)
    write_atomically(target, content)
    return calibration


def export_program(
    net: Method,
    example: Any,
    path: str | PathLike[str],
    *,
    classes: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
    estimator: AccuracyEstimator | None = None,
) -> Calibration:
    """Write a calibrated method with torch.export (.pt2); the arguments are those of export_onnx.

    The outputs are those of the ONNX file, by position; the calibration is in the extra files.
    """
    target = check_path("path", path)
    traced = _trace(net, example, estimator)
    calibration = traced.calibration(classes, about or {})
    content = io.BytesIO()
    with _quiet():
        names = "\n".join(traced.module.output_names)
        extra = {**calibration.to_metadata(), "unseen.outputs": names}
        torch.export.save(traced.program, content, extra_files=extra)
    write_atomically(target, content.getvalue())
    return calibration


class _Traced:
    """A traced method, its inputs and example."""

    def __init__(
        self,
        module: ScoredModule,
        program: torch.export.ExportedProgram,
        example: Inputs,
        inputs: list[Input],
        estimator: AccuracyEstimator | None,
    ) -> None:
        self.module, self.program, self.example = module, program, example
        self.inputs, self.estimator = inputs, estimator

    @torch.no_grad()
    def outputs(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with evaluating(self.module):
            found: tuple[Tensor, ...] = self.module(*x)
        return found

    def calibration(self, classes: Sequence[str], about: Mapping[str, Any]) -> Calibration:
        logits = self.outputs(self.example)[0]
        count, net = logits.shape[1], self.module.net
        if logits.dim() > 2 and net.objective.classifies:
            about = {"labels": "map", **about}
        names = [str(name) for name in classes] or [str(c) for c in range(count)]
        if len(names) != count:
            raise UnseenError(f"classes has {len(names)} names, the model predicts {count}")
        return calibration_of(net, self.estimator, self.inputs, names, about)


def _trace(net: Method, example: Any, estimator: AccuracyEstimator | None) -> _Traced:
    check_type("net", net, Method, "a trained method, such as unseen.load returns")
    net.detector.calibrated()
    if estimator is None:
        estimator = _estimator_of(net)
    elif not estimator.matches(net):
        raise UnseenError(
            "this estimator was fitted with another method or other weights: fit it again"
        )
    given = bind(net.model, inputs(example))
    samples = len(given[0])
    if samples == 0:
        raise UnseenError("an export needs an example batch with at least one sample")
    device = next(net.model.parameters()).device
    rows = torch.arange(TRACED) % samples
    batch = Inputs.like(given, [t.to(device) for t in take_rows(given, rows)])
    module = ScoredModule(net, estimator, batch.names)
    batched = [t.shape[:1] == given[0].shape[:1] for t in given]
    described = _describe(net, batch, batched)
    size = torch.export.Dim("batch", min=1)
    shapes = tuple({0: size} if b else None for b in batched)
    with torch.no_grad(), evaluating(module), _quiet():
        try:
            module(*batch)  # raises what the model raises
            program = torch.export.export(
                module, tuple(batch), dynamic_shapes={"x": shapes}, strict=False
            )
        except UnseenError:
            raise
        except Exception as error:  # torch.export raises many types
            raise UnseenError(_why_not(net, error)) from error
    return _Traced(module, program, batch, described, estimator)


def _estimator_of(net: Method) -> AccuracyEstimator | None:
    if not net.objective.classifies:  # no accuracy to estimate
        return None
    try:
        return net.accuracy_estimator
    except UnseenError as error:
        log.warning("exported without accuracy estimates: %s", error)
        return None


def _describe(net: Method, batch: Inputs, batched: Sequence[bool]) -> list[Input]:
    parameters = inspect.signature(net.model.forward).parameters.values()
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    described = []
    for i, (tensor, varies) in enumerate(zip(batch, batched, strict=True)):
        position = i - len(batch.positional)
        default = places[i] if i < len(places) else f"input_{i}"
        name = batch.names[position] if position >= 0 else default
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in INPUT_DTYPES:
            raise UnseenError(
                f"input {name} is {dtype}; an exported model takes {', '.join(INPUT_DTYPES)}"
            )
        rest = tuple(tensor.shape[1:]) if varies else tuple(tensor.shape)
        described.append(Input(name, (None, *rest) if varies else rest, dtype))
    return described


def _why_not(net: Method, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    kind = type(net.model).__name__
    if "specialized" in str(error) or "Constraints violated" in str(error):
        return (
            f"{kind} cannot be exported with a batch of any size: its forward fixes the size. "
            f"Use x.shape[0] in place of len(x), and no int(). torch.export says: {reason}"
        )
    return f"torch.export cannot trace {kind}: {reason}"


def _compare(traced: _Traced, content: bytes) -> None:
    """Raise unless onnxruntime computes what torch does."""
    try:
        import onnxruntime
    except ImportError:
        log.warning("the exported graph is not compared with torch: onnxruntime is not installed")
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        for size in CHECKED:
            batch = take_rows(traced.example, torch.arange(size) % TRACED)
            feeds = {i.name: t.cpu().numpy() for i, t in zip(traced.inputs, batch, strict=True)}
            computed = session.run(traced.module.output_names, feeds)
            _check_equal(traced, batch, computed)
    except UnseenError:
        raise
    except Exception as error:  # onnxruntime raises its own types
        raise UnseenError(f"onnxruntime cannot run the exported graph: {error}") from error


def _check_equal(traced: _Traced, batch: Inputs, computed: Sequence[Any]) -> None:
    expected = traced.outputs(batch)
    for name, t, value in zip(traced.module.output_names, expected, computed, strict=True):
        wanted = t.cpu().numpy()
        same = wanted.shape == value.shape
        scale = 1 + float(np.abs(wanted).max(initial=0))
        error = float(np.abs(wanted - value).max(initial=0)) if same else float("inf")
        if not error <= LOOSE.get(name, TOLERANCE) * scale:
            raise UnseenError(
                f"the exported graph differs from torch in {name} by {error:.2g} for a batch of "
                f"{len(batch[0])}: the model has layers that do not export; nothing was written"
            )


def _check_installed(*packages: str) -> None:
    from importlib.util import find_spec

    if missing := [name for name in packages if find_spec(name) is None]:
        raise UnseenError(f"ONNX export needs {', '.join(missing)}: pip install 'unseen[deploy]'")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch logs and warns of its own internals during an export."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
