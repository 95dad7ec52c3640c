"""What reading a folder of JPEGs costs beside training on it.

    python benchmarks/data_loading.py                     # 10,000 JPEGs, about a minute
    python benchmarks/data_loading.py --images 1000 --steps 30 --json
    python benchmarks/data_loading.py --folder photos --steps 5      # images that are there

Trains the default network for images, ResNet-18, on random JPEGs three times: on a batch that stays
in memory (the step alone), on files that are decoded for the first time in worker processes, and on
files that were decoded before. All three are measured in one run, in turns, so that a loaded
machine slows them alike. `loading` is the part of a step that is spent waiting for its batch.
`check` is the look at every file before training, once; its seconds of processor time, unlike those
of the clock, hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import unseen
from unseen.tasks.own_files import task_from_files
from unseen.training.batches import stream, take, training_indices

SIDE = 64  # pixels of a JPEG
BATCH = 32
LIMIT = 0.2  # part of a step that loading may cost


def write_jpegs(root: Path, count: int) -> None:
    """Write photos of two classes: smooth noise, which compresses like a photo."""
    rng = np.random.default_rng(0)
    for i in range(count):
        small = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        folder = root / ("a" if i % 2 else "b")
        folder.mkdir(exist_ok=True)
        Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(
            folder / f"{i}.jpg", quality=90
        )


def processor_seconds() -> float:
    """Return the time that this process and its children have computed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(images: int, steps: int, width: float, given: Path | None) -> dict[str, object]:
    """Return the seconds of a step with and without loading."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNSEEN_CACHE"] = f"{folder}/cache"
        root = given or Path(folder, "photos")
        if given is None:
            root.mkdir()
            write_jpegs(root, images)
        start, computed = time.perf_counter(), processor_seconds()
        task = task_from_files(str(root))
        checked, computed = time.perf_counter() - start, processor_seconds() - computed
        again = processor_seconds()
        task = task_from_files(str(root))
        again = processor_seconds() - again
        total = sum(len(task.source.load(split)) for split in ("train", "val", "test"))
        data = task.source.load("train")
        net = unseen.ERM(task.model(width=width), embedding="pool", lr=1e-4).train()

        def step(batch: unseen.Batch) -> float:
            begun = time.perf_counter()
            net.step(batch)
            return time.perf_counter() - begun

        fixed = take(data, torch.arange(BATCH))
        step(fixed)
        rows: dict[str, list[tuple[float, float]]] = {"decoding": [], "decoded": []}
        first_batch = 0.0
        for name in rows:  # the same batches twice
            # More than are used, as in training: workers do not run dry before the end.
            parts = (training_indices(data, BATCH, 1, s) for s in range(steps + 64))
            batches = stream(data, parts, (steps + 64) * BATCH)
            for _ in range(steps):
                begun = time.perf_counter()
                batch = next(batches)
                waited = time.perf_counter() - begun
                first_batch = first_batch or waited
                rows[name].append((waited, step(batch)))
            batches.close()  # type: ignore[attr-defined]
        alone = [step(fixed) for _ in range(min(steps, 20))]
    result: dict[str, object] = {
        "images": total,
        "steps": steps,
        "width": width,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [load, os.getloadavg()[0]],
        "check_seconds": checked,
        "check_processor_seconds": computed,
        "second_check_processor_seconds": again,
        "first_batch_seconds": first_batch,
        "step_seconds": statistics.median(alone),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for name, times in rows.items():
        waiting, stepping = (sum(values) for values in zip(*times[1:], strict=True))
        result[f"loading_{name}"] = waiting / (waiting + stepping)
        result[f"step_{name}_ratio"] = statistics.median(b for _, b in times) / float(
            result["step_seconds"]  # type: ignore[arg-type]
        )
    result["within_limit"] = float(result["loading_decoding"]) < LIMIT  # type: ignore[arg-type]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="of images, in place of random ones")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=float, default=1.0, help="of the network; 1 is ResNet-18")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.images, options.steps, options.width, options.folder)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name:24s} {value:.3f}" if isinstance(value, float) else f"{name:24s} {value}")


if __name__ == "__main__":
    main()
