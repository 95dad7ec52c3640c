"""Cost of the score in an exported model, in one process on one thread.

    python benchmarks/deploy.py [--repeats 15] [--json]

For the backbones of digits and cifar10_c, with the score read at the site and at the embedding:
the time of a prediction under onnxruntime from a graph of the model alone, of a prediction with the
score, and of everything that a verdict needs. They are timed in turn; ratios are those of medians.
The largest difference from torch is printed too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import unseen
from unseen.deploy import OnnxDetector, export_onnx
from unseen.detection import accuracy_points
from unseen.models import AllConv, DigitsNet

BATCH = 32
MODELS = {"digits": (DigitsNet, "conv1", "fc2"), "cifar10_c": (AllConv, "conv1", "pool")}


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def open_plain(model: torch.nn.Module, x: torch.Tensor, path: Path) -> onnxruntime.InferenceSession:
    """Export the model alone, with a batch of any size."""
    size = torch.export.Dim("batch")
    program = torch.onnx.export(
        model.eval(), (x[:3],), dynamic_shapes=({0: size},), dynamo=True, verbose=False
    )
    assert program is not None
    program.save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def measure(name: str, at: str, repeats: int, folder: Path) -> dict:
    torch.manual_seed(0)
    kind, site, embedding = MODELS[name]
    model = kind()
    net = unseen.UncertaintyGuided(model, sites=[site], embedding=embedding)
    net.detector = net.make_detector(at)
    x, y = torch.rand(200, 3, 32, 32), torch.randint(10, (200,))
    unseen.calibrate(net, [(x, y)], [(x, y)])
    shifts = {
        "noise": [lambda v, g: (v[0] + 0.3 * torch.randn(v[0].shape, generator=g),)],
        "dark": [lambda v, g: (0.5 * v[0],)],
        "bright": [lambda v, g: (v[0] + 0.5,)],
    }
    net.accuracy_estimator = unseen.AccuracyEstimator.fit(net, [(x, y)], shifts=shifts, samples=16)
    path = folder / f"{name}-{at}.onnx"
    export_onnx(net, x[:3], path)
    detector = OnnxDetector(path, threads=1)
    plain = open_plain(model, x, folder / "plain.onnx")
    (feed,) = plain.get_inputs()
    batch = x[:BATCH].numpy()
    calls: dict[str, Callable[[], object]] = {
        "prediction": lambda: plain.run(None, {feed.name: batch}),
        "with_score": lambda: detector.predict_and_score(batch),
        "verdict_inputs": lambda: detector.observe(batch),
    }
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(repeats + 3):
        for key, call in calls.items():
            times[key].append(milliseconds(call))
    medians = {key: statistics.median(values[3:]) for key, values in times.items()}
    logits, scores = detector.predict_and_score(batch)
    expected = net.predict_with_uncertainty(x[:BATCH])
    pairs = zip((logits, scores), expected, strict=True)
    return {
        "task": name,
        "score_at": at,
        "batch": BATCH,
        **{f"{key}_ms": value for key, value in medians.items()},
        "ratio": medians["with_score"] / medians["prediction"],
        "ratio_of_verdict_inputs": medians["verdict_inputs"] / medians["prediction"],
        "difference_from_torch": max(float(np.abs(a - b.numpy()).max()) for a, b in pairs),
        "predicted_accuracy_difference": abs(
            detector.verdict(batch).predicted_accuracy - net.verdict(x[:BATCH]).predicted_accuracy
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    accuracy_points.BLENDS = 3  # the quality of the estimate does not matter here
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure(name, at, options.repeats, Path(folder))
            for name in MODELS
            for at in ("site", "embedding")
        ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['task']:<10s} {row['score_at']:<9s} prediction {row['prediction_ms']:6.1f} ms, "
            f"with score {row['ratio']:.3f}x, with every signal "
            f"{row['ratio_of_verdict_inputs']:.3f}x, differs from torch by "
            f"{row['difference_from_torch']:.1e}"
        )


if __name__ == "__main__":
    main()
