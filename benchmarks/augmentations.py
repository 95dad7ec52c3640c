"""Measure what augmentations cost, relative to an ERM step of the task's network.

    python benchmarks/augmentations.py
    python benchmarks/augmentations.py --only randconv --repeats 30

Steps and augmentations are interleaved and timed in CPU seconds of one thread, so that other load
affects both. A batch is augmented whole; with `views=2` the step it precedes is twice as long.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import torch

from unseen.api import Batch
from unseen.augmentations import Views
from unseen.installed import keep_freed_memory
from unseen.methods import ERM
from unseen.models import AllConv, DigitsNet, FCN32s, LeNet, ReviewMLP

LIMIT = 0.15


def images(count: int, channels: int, height: int, width: int, classes: int) -> Batch:
    return Batch((torch.rand(count, channels, height, width),), torch.randint(classes, (count,)))


def cases() -> dict[str, tuple[ERM, Batch, list[str]]]:
    """Return a method, a batch and augmentations for each kind of data."""
    scenes = images(8, 3, 180, 240, 11)
    scenes = scenes._replace(y=torch.randint(11, (8, 180, 240)))
    counts = (torch.rand(32, 5000) < 0.02).float()  # a hundred words of 5000
    reviews = Batch((counts,), torch.randint(2, (32,)))
    pictures = ["cutout", "flip_crop", "affine", "randconv", "randconv:share=1.0",
                "randconv:share=1.0,layers=4", "random_kernel", "colour", "light"]  # fmt: skip
    cifar = ["flip_crop", "augmix", "hybrid", "hybrid:mode=single,share=0.5"]
    return {
        "digits": (ERM(DigitsNet()), images(32, 3, 32, 32, 10), pictures),
        "cifar10_c, width 0.25": (ERM(AllConv(10, 0.25)), images(64, 3, 32, 32, 10), cifar),
        "google_commands": (
            ERM(LeNet(10)), images(32, 1, 32, 32, 10), ["specaugment", "mixup"]
        ),
        "amazon_reviews": (ERM(ReviewMLP()), reviews, ["word_dropout"]),
        "driving, width 0.5": (
            ERM(FCN32s(11, depth=18, width=0.5)), scenes,
            ["colour", "light", "randconv", "augmix:geometry=false"],
        ),
    }  # fmt: skip


def measure(task: str, net: ERM, batch: Batch, texts: list[str], repeats: int) -> list[dict]:
    """Return the mean cost of each augmentation and its ratio to the mean of the steps."""
    made = {text: Views(text) for text in texts}
    acts: dict[str, Callable[[], object]] = {"": lambda: net.step(batch)}
    acts |= {text: lambda views=views: views(batch) for text, views in made.items()}
    times: dict[str, list[float]] = {name: [] for name in acts}
    for repeat in range(repeats + 2):  # the first two warm up
        for name, act in acts.items():
            start = time.process_time()
            act()
            if repeat > 1:
                times[name].append(time.process_time() - start)
    # Means, not medians: the number of passes of randconv is random.
    step = statistics.mean(times.pop(""))
    return [
        {
            "task": task,
            "augmentation": text,
            "ms": 1e3 * statistics.mean(seconds),
            "erm_step_ms": 1e3 * step,
            "ratio": statistics.mean(seconds) / step,
        }
        for text, seconds in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--repeats", type=int, default=20, help="timed steps (default: 20)")
    parser.add_argument("--only", default="", help="augmentations whose text contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()
    rows = []
    for task, (net, batch, texts) in cases().items():
        if chosen := [text for text in texts if args.only in text]:
            rows += measure(task, net, batch, chosen, args.repeats)
    load = os.getloadavg()[0]
    if args.json:
        print(json.dumps({"rows": rows, "load": load, "torch": torch.__version__}, indent=2))
        return
    print(f"{'task':24s} {'augmentation':32s} {'ms':>8s} {'step ms':>8s} {'ratio':>7s}")
    for row in rows:
        print(
            f"{row['task']:24s} {row['augmentation']:32s} {row['ms']:8.2f} "
            f"{row['erm_step_ms']:8.1f} {row['ratio']:7.1%}"
            + ("  above the limit" if row["ratio"] > LIMIT else "")
        )
    print(f"load of the machine: {load:.1f}")


if __name__ == "__main__":
    main()
