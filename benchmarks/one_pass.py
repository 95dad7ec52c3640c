"""Cost of every accuracy signal beside a prediction, in one process on one thread.

    python benchmarks/one_pass.py [--repeats 30] [--json]

For the backbones of digits and cifar10_c at batch 64 and 256: the time of a prediction, of a
prediction with every one-pass signal, and of a verdict from the signals' moments. The two are timed
in turn; the ratio is that of their medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

import unseen
from unseen.detection.one_pass import OnePass
from unseen.models import AllConv, DigitsNet
from unseen.nn.batch import Batch


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def measure(model: torch.nn.Module, site: str, embedding: str, size: int, repeats: int) -> dict:
    torch.manual_seed(0)
    net = unseen.UncertaintyGuided(model, sites=[site], embedding=embedding)
    x, y = torch.rand(512, 3, 32, 32), torch.randint(10, (512,))
    unseen.calibrate(net, [(x, y)], [(x, y)])
    one_pass = OnePass(net, 10)
    seen = one_pass.calibrate(Batch((x,), y), -100)
    correctness = one_pass.correctness
    rows = correctness.rows_of(seen.logits, one_pass.noise_scores(seen.features))
    assert seen.correct is not None
    correctness.fit_inputs(rows, seen.correct[:, 0], torch.ones(len(rows), dtype=torch.float64))
    batch = (x[:size],)
    plain, all_signals = [], []
    for _ in range(repeats + 3):
        plain.append(milliseconds(lambda: net.predict(batch)))
        all_signals.append(milliseconds(lambda: one_pass.observe(batch, own=net.detector)))
    medians = statistics.median(plain[3:]), statistics.median(all_signals[3:])
    return {
        "batch": size,
        "prediction_ms": medians[0],
        "with_signals_ms": medians[1],
        "ratio": medians[1] / medians[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = {
        "digits": (DigitsNet(), "conv1", "fc2"),
        "cifar10_c": (AllConv(), "conv1", "pool"),
    }
    rows = []
    for name, (model, site, embedding) in models.items():
        for size in (64, 256):
            rows.append({"task": name, **measure(model, site, embedding, size, options.repeats)})
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            f"{row['task']:<10s} batch {row['batch']:<4d} {row['prediction_ms']:7.1f} ms, "
            f"with every signal {row['with_signals_ms']:7.1f} ms: {row['ratio']:.2f}x"
        )


if __name__ == "__main__":
    main()
