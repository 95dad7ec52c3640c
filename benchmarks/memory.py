"""Peak memory of a training step, by draws, order of the meta step and the settings that save it.

    python benchmarks/memory.py --json > results/memory/memory.json
    python benchmarks/memory.py --table results/memory/memory.json > results/memory/README.md
    python benchmarks/memory.py --quick

Two models, with noise behind the first convolution and learned mixup: the default network for
images, ResNet-18 at 64 pixels with 16 samples, for every combination; and ResNet-50 at 224 pixels
with 10 draws and a few samples, from which the batch that fits a device of 24 GB is extrapolated: a
line through 1 and 2 samples, or through 2 and 3 with microbatches, which do not divide 1 sample.

`tensors` is what torch has allocated at the peak of one step, with weights, the state of Adam and
the batch. It is counted from the profiler's events, so it does not depend on other work on the
machine, and holds for any device. `process` is the largest resident memory of the process, which
has torch itself and the work space of kernels too. Each row runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from unseen import Batch, UncertaintyGuided
from unseen.models.resnet_classifier import ResNetClassifier
from unseen.nn.recomputation import recomputing
from unseen.training.identity import commit_here
from unseen.training.machine import forget_peak_memory, peak_memory, processor

DEVICE = 24e9
ALLOWANCE = 2e9  # of the device, for its context and the work space of kernels
PIXELS = {18: 64, 50: 224}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "chunk=1": {"chunk": 1},
    "microbatch": {"microbatch": 1},
    "checkpointing": {"checkpointing": True},
    "bf16": {"bf16": True},
    "microbatch, bf16": {"microbatch": 1, "bf16": True},
    "checkpointing, bf16": {"checkpointing": True, "bf16": True},
    "checkpointing, bf16, chunk=1": {"checkpointing": True, "bf16": True, "chunk": 1},
}
# Of ResNet-50, for both orders of the meta step.
DEEP_OPTIONS = ["none", "chunk=1", "microbatch", "checkpointing", "bf16", "microbatch, bf16"]


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    depth: int  # of the ResNet
    batch: int
    draws: int
    order: str  # of the meta step, first or second
    option: str = "none"

    def __str__(self) -> str:
        return (
            f"ResNet-{self.depth}, batch {self.batch}, {self.draws} draws, {self.order}, "
            f"{self.option}"
        )


def cases(quick: bool) -> Iterator[Case]:
    if quick:
        yield from (Case(18, 2, 1, "first", option) for option in OPTIONS)
        return
    for draws in (1, 3, 10):
        for order in ("first", "second"):
            for option in OPTIONS:
                yield Case(18, 16, draws, order, option)
    for order in ("first", "second"):
        for option in DEEP_OPTIONS:
            for batch in line_through(option):
                yield Case(50, batch, 10, order, option)


def line_through(option: str) -> tuple[int, int]:
    """Return the two batches from which others are extrapolated."""
    return (2, 3) if "microbatch" in OPTIONS[option] else (1, 2)


def measure(case: Case) -> dict[str, Any]:
    """Measure one step in this process."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    option = OPTIONS[case.option]
    net = UncertaintyGuided(
        ResNetClassifier(10, depth=case.depth), sites=["conv1"], embedding="pool", warmup=0,
        adversary=None, draws=case.draws, meta=case.order, chunk=option.get("chunk"),  # type: ignore[arg-type]
    )  # fmt: skip
    pixels = PIXELS[case.depth]
    batch = Batch((torch.rand(case.batch, 3, pixels, pixels),), torch.randint(10, (case.batch,)))
    net.prepare(batch)
    for p in net.parameters():  # the state of Adam, which later steps have
        p.grad = torch.zeros_like(p)
    net.model_optimizer.step()
    net.model_optimizer.zero_grad()
    state = (v for entry in net.model_optimizer.state.values() for v in entry.values())
    fixed = sum(t.nbytes for t in (*net.state_dict().values(), *state, *batch.x))
    forget_peak_memory()
    start = time.process_time()
    with ExitStack() as opened:
        if size := option.get("microbatch"):
            opened.enter_context(net.dividing(size))
        if option.get("checkpointing"):
            opened.enter_context(recomputing(net.model))
        if option.get("bf16"):
            opened.enter_context(net.mixed_precision(net.model, "bf16", None))
        measured = opened.enter_context(
            profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        )
        net.step(batch)
    seconds = time.process_time() - start
    process = peak_memory(torch.device("cpu"))
    return {
        **asdict(case),
        "tensors_mb": (fixed + allocated_at_peak(measured)) / 1e6,
        "fixed_mb": fixed / 1e6,
        "process_mb": None if process is None else process / 1e6,
        "cpu_seconds": seconds,
    }


def allocated_at_peak(measured: Any) -> int:
    """Return the largest number of bytes that were allocated at a time."""
    events = measured.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = peak = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


def extrapolate(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return which batch of ResNet-50 fits the device on paper; None if memory does not grow."""
    deep = {
        (r["order"], r["option"], r["batch"]): r["tensors_mb"] for r in rows if r["depth"] == 50
    }
    answers = []
    for order, option in dict.fromkeys(key[:2] for key in deep):
        few, more = line_through(option)
        first, sample = deep[order, option, few], deep[order, option, more]
        sample -= first
        room = (DEVICE - ALLOWANCE) / 1e6 - first
        fits = (few + int(room // sample) if room > 0 else 0) if sample > 0 else None
        answers.append(
            {"order": order, "option": option, "mb_per_sample": sample, "fits_24_gb": fits}
        )
    return answers


def run_all(quick: bool) -> dict[str, Any]:
    context, rows, commit = multiprocessing.get_context("spawn"), [], commit_here()
    for case in cases(quick):
        with context.Pool(1) as pool:
            rows.append(row := pool.apply(measure, (case,)))
        print(f"{case}: {row['tensors_mb']:,.0f} MB", file=sys.stderr, flush=True)
    return {
        "command": f"python {' '.join(sys.argv)}",
        "commit": commit,
        "machine": f"{processor()}, {platform.platform()}",
        "torch": torch.__version__,
        "threads": 1,
        "rows": rows,
        "device_gb": DEVICE / 1e9,
        "allowance_gb": ALLOWANCE / 1e9,
        "on_paper": [] if quick else extrapolate(rows),
    }


def table(result: dict[str, Any]) -> str:
    """Return the tables of a result as Markdown."""
    by_case = {
        (r["depth"], r["batch"], r["draws"], r["order"], r["option"]): r for r in result["rows"]
    }
    columns = list(dict.fromkeys(key[:4] for key in by_case if key[0] == 18))
    heads = " | ".join(f"{draws} draws, {order}" for _, _, draws, order in columns)
    lines = [
        "# Peak memory of a training step",
        "",
        f"`{result['command']}`, commit {result['commit']}, torch {result['torch']}, one thread.",
        f"Machine: {result['machine']}.",
        "",
        "MB of tensors at the peak of a step, weights and Adam included. Written by",
        "`benchmarks/memory.py --table`; its head says what is counted.",
        "",
        f"ResNet-18, {PIXELS[18]} pixels, batch {columns[0][1]}; `microbatch` is 1:",
        "",
        f"| | {heads} |",
        f"| --- |{' ---: |' * len(columns)}",
    ]
    for option in OPTIONS:
        cells = [f"{by_case[(*c, option)]['tensors_mb']:,.0f}" for c in columns]
        lines.append(f"| {option} | {' | '.join(cells)} |")
    if not result["on_paper"]:
        return "\n".join(lines)
    lines += [
        "",
        f"ResNet-50, {PIXELS[50]} pixels, 10 draws, batch 2. The last two columns are",
        "extrapolated: a line through the tensors of 1 and 2 samples, with microbatches of 2 and",
        f"3, and {result['allowance_gb']:.0f} GB left for the device's context and the work space",
        "of its kernels.",
        "",
        "| order | | tensors, MB | process, MB | CPU s | MB for 1 sample more "
        "| batch that fits 24 GB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for answer in result["on_paper"]:
        order, option = answer["order"], answer["option"]
        row, fits = by_case[50, 2, 10, order, option], answer["fits_24_gb"]
        lines.append(
            f"| {order} | {option} | {row['tensors_mb']:,.0f} | {row['process_mb']:,.0f} "
            f"| {row['cpu_seconds']:.0f} | {answer['mb_per_sample']:,.1f} "
            f"| {'does not grow' if fits is None else f'{fits:,}'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--table", type=Path, help="print the tables of this JSON document")
    parser.add_argument("--quick", action="store_true", help="a few rows, to see that it runs")
    args = parser.parse_args()
    result = json.loads(args.table.read_text()) if args.table else run_all(args.quick)
    print(json.dumps(result, indent=2) if args.json else table(result))


if __name__ == "__main__":
    main()
