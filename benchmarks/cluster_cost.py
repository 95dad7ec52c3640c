"""Cost of running on Ray: a grid against the local runner, scoring with 2 workers against 1.

    python benchmarks/cluster_cost.py [--repeats 2] [--samples 20000] [--json]
    python benchmarks/cluster_cost.py --only grids

Ray is started before anything is timed; the time of the start is printed alone. Grids of 8 short
runs are run in turn by both runners, two runs at a time. Samples are scored by `BatchScorer` in
actors of one thread, which open the model before the clock starts. Then the figures that
`docs/scaling.md` extrapolates: seconds and bytes of a million samples, and of merging their sums.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unseen
from unseen.deploy import BatchScorer, export_onnx, merge_sums
from unseen.deploy.batch_scorer import sums_to_bytes
from unseen.experiments.grid import read_grid
from unseen.experiments.run_grid import run_grid
from unseen.experiments.runners.local import LocalRunner
from unseen.experiments.runners.on_ray import RayRunner, connect
from unseen.models import DigitsNet

BATCH = 1024
PARTS = 64  # sums to merge, for the time of one merge
GRID = """
task = "mini_digits"
seeds = [0, 1, 2, 3]
runs = "{folder}/runs"
results = "{folder}/results"
samples = 100
[set]
steps = {steps}
[[row]]
method = "erm"
[[row]]
method = "mixup"
"""


def grid_seconds(runner: Any, folder: Path, steps: int) -> float:
    """Return how long a grid of 8 runs takes."""
    folder.mkdir()
    path = folder / "grid.toml"
    path.write_text(GRID.format(folder=folder, steps=steps))
    grid = read_grid(path)
    start = time.perf_counter()
    result = run_grid(grid, quiet=True, runner=runner)
    assert result["failed"] == {} and result["runs"] == 8, result["failed"]
    return time.perf_counter() - start


def measure_grids(repeats: int, steps: int, root: Path) -> dict[str, Any]:
    """Run the grid by both runners in turn; ratios are those of medians."""
    times: dict[str, list[float]] = {"local": [], "ray": []}
    for number in range(repeats):
        for name in times:
            with LocalRunner(2) if name == "local" else RayRunner(workers=2) as runner:
                times[name].append(grid_seconds(runner, root / f"{name}{number}", steps))
                print(f"grid, {name}: {times[name][-1]:.1f} s", file=sys.stderr, flush=True)
    local, on_ray = (statistics.median(times[name]) for name in ("local", "ray"))
    return {
        "grid_overhead": on_ray / local,
        "grid_runs": 8,
        "grid_seconds_local": local,
        "grid_seconds_ray": on_ray,
        "grid_seconds_all": times,
    }


def export_digits(path: Path) -> np.ndarray:
    """Export the backbone of digits with its score and an accuracy estimator; return samples."""
    torch.manual_seed(0)
    net = unseen.UncertaintyGuided(DigitsNet(), sites=["conv1"], embedding="fc2")
    net.detector = net.make_detector("embedding")
    x, y = torch.rand(200, 3, 32, 32), torch.randint(10, (200,))
    unseen.calibrate(net, [(x, y)], [(x, y)])
    shifts = {
        "noise": [lambda v, g: (v[0] + 0.3 * torch.randn(v[0].shape, generator=g),)],
        "dark": [lambda v, g: (0.5 * v[0],)],
        "bright": [lambda v, g: (v[0] + 0.5,)],
    }
    net.accuracy_estimator = unseen.AccuracyEstimator.fit(net, [(x, y)], shifts=shifts, samples=16)
    export_onnx(net, x[:3], path)
    return torch.rand(BATCH, 3, 32, 32).numpy()


class ScoringActor:
    """Scores batches of random images in an actor of Ray; returns the sums of its shard."""

    def __init__(self, path: str) -> None:
        self.score = BatchScorer(path, sums_by="number", threads=1)
        self.x = np.random.default_rng(0).random((BATCH, 3, 32, 32), np.float32)

    def run(self, first: int, batches: int) -> bytes:
        numbers = [np.arange(BATCH) + (first + i) * BATCH for i in range(batches)]
        sums = merge_sums(self.score({"x": self.x, "number": n})["sums"][0] for n in numbers)
        return sums_to_bytes(sums)


def measure_scoring(ray: Any, path: Path, samples: int, repeats: int) -> dict[str, Any]:
    """Score samples with 1 and with 2 workers in turn; rates include the merge of the shards."""
    actor = ray.remote(num_cpus=1)(ScoringActor)
    actors = [actor.remote(str(path)) for _ in range(2)]
    ray.get([a.run.remote(0, 1) for a in actors])  # opens the model
    batches, rates = max(2, samples // BATCH // 2 * 2), dict[int, list[float]]({1: [], 2: []})
    for _ in range(repeats):
        for workers, found in rates.items():
            share = batches // workers
            start = time.perf_counter()
            calls = [a.run.remote(i * share, share) for i, a in enumerate(actors[:workers])]
            n = merge_sums(ray.get(calls)).n
            found.append(n / (time.perf_counter() - start))
            print(f"{workers} workers: {found[-1]:,.0f} samples/s", file=sys.stderr, flush=True)
    one, two = (statistics.median(found) for found in rates.values())
    return {"scoring_ratio": two / one, "samples_per_second": {"1": one, "2": two}}


def measure_cost(path: Path, x: np.ndarray, repeats: int) -> dict[str, Any]:
    """Return CPU seconds and bytes of a million samples, and the cost of merging.

    CPU time depends little on what else the machine does.
    """
    score = BatchScorer(path, sums_by="number", threads=1)
    times, columns = [], {}
    for _ in range(repeats + 4):
        start = time.process_time()
        columns = score({"x": x, "number": np.arange(BATCH)})
        times.append(time.process_time() - start)
    row_bytes = sum(c.itemsize for name, c in columns.items() if name != "sums")
    part = columns["sums"][0]
    start = time.process_time()
    merge_sums([part] * PARTS)
    merging = (time.process_time() - start) / PARTS
    return {
        "cpu_seconds_per_million": statistics.median(times) / BATCH * 1e6,
        "input_bytes_per_million": x[0].nbytes * 1_000_000,
        "output_bytes_per_million": row_bytes * 1_000_000,
        "bytes_of_sums": len(part),
        "cpu_seconds_per_merge": merging,
    }


def measure(repeats: int, samples: int, steps: int, only: str | None) -> dict[str, Any]:
    """Return the figures of grids, of scoring, or all."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        x = export_digits(root / "model.onnx")
        start = time.perf_counter()
        ray, _ = connect(None, 2)
        started = time.perf_counter() - start
        print(f"Ray started in {started:.1f} s", file=sys.stderr, flush=True)
        try:
            found = {"load": os.getloadavg()[0], "ray_start_seconds": started}
            if only != "scoring":
                found |= measure_grids(repeats, steps, root)
            if only != "grids":
                found |= measure_scoring(ray, root / "model.onnx", samples, repeats + 1)
                found |= measure_cost(root / "model.onnx", x, repeats)
            return found
        finally:
            ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=100, help="of each of the 8 runs")
    parser.add_argument("--only", choices=["grids", "scoring"], help="one of the two parts")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = measure(args.repeats, args.samples, args.steps, args.only)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(
            f"{name:28s} {value:,.4g}" if isinstance(value, float | int) else f"{name:28s} {value}"
        )


if __name__ == "__main__":
    main()
