"""Two processes against one: training, grids on Ray, scoring.

    python benchmarks/distributed.py --json > results/distributed/distributed.json
    python benchmarks/distributed.py --json --only training > training.json
    python benchmarks/distributed.py --json --only grids --add training.json > two_parts.json
    python benchmarks/distributed.py --quick

Training: the backbone of digits, 64 samples and one thread a process, gloo. Process 0 trains alone
and both train together in turns, so that other load affects both sides; a ratio is the median over
turns. `ratio_without_exchanges` is that of two processes that train apart at the same time: what
the machine allows. `cpu_of_exchanges` is the CPU time that sharing a step adds to that of the same
samples alone; it depends little on other load. `max_weight_difference` is between weights after 20
steps of SGD of two processes with half of every batch each and of one process; `weight_differences`
has Adam too, and 64 bits. `amplified_rounding` is what one process has of it: the difference to its
own weights when it starts from weights that are moved by 6e-8 of their size, half a unit in the
last place. `bytes_per_step` is what a process averages with the others.
Grids and scoring are those of `benchmarks/cluster_cost.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from unseen import ERM, Batch, Method, UncertaintyGuided
from unseen.installed import keep_freed_memory
from unseen.models import DigitsNet
from unseen.nn.ranks import ALONE, Ranks
from unseen.training.config import LoopSettings
from unseen.training.distributed import Processes
from unseen.training.identity import commit_here
from unseen.training.machine import processor
from unseen.training.updates import Updates

PROCESSES = 2
BATCH = 64  # of a process
CHECKED_STEPS = 20
GRIDS_AND_SCORING = Path(__file__).with_name("cluster_cost.py")
SETTINGS: dict[str, dict[str, Any]] = {
    "uncertainty_guided": {"meta": "first"},
    "uncertainty_guided, second order": {"meta": "second"},
    "erm": {},
}
SGD = {"optimizer": "sgd", "lr": 0.05}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": SGD,
    "sgd, 64 bits": {**SGD, "double": True},
    "adam": {},
    "adam, 64 bits": {"double": True},
}
ROUNDING = 6e-8  # of a weight, 32 bits


def make(name: str, **settings: Any) -> Method:
    torch.manual_seed(0)
    if name == "erm":
        return ERM(DigitsNet(), **settings)
    return UncertaintyGuided(
        DigitsNet(), sites=["conv1"], embedding="fc2", draws=2, warmup=0, adversary=None,
        **{**SETTINGS[name], **settings},
    )  # fmt: skip


def take_steps(updates: Updates, batches: list[Batch]) -> tuple[float, float]:
    """Take a step on the own rows of each batch; return the seconds, and those of CPU."""
    processes = updates.processes
    start, computed = time.perf_counter(), time.process_time()
    with updates.running():
        for batch in batches:
            if isinstance(processes, Processes):
                processes.divide(len(batch.y))
                rows = slice(processes.offset, processes.offset + processes.own)
                updates.step(batch.rows(rows))
            else:
                updates.step(batch)
    return time.perf_counter() - start, time.process_time() - computed


def random_batches(count: int, size: int) -> list[Batch]:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(size, 3, 32, 32, generator=g)
    return [Batch((x,), torch.randint(10, (size,), generator=g)) for _ in range(count)]


def time_in_turns(name: str, turns: int, steps: int) -> dict[str, Any]:
    """Time process 0 alone and all processes together; every process calls this."""
    together = Processes(torch.device("cpu"))
    sides: dict[str, tuple[Updates, list[Batch]]] = {}
    for side, ranks in (("alone", ALONE), ("together", together)):
        loop = LoopSettings(steps=steps * (turns + 1))
        size = BATCH * ranks.size
        sides[side] = (Updates(make(name), loop, processes=ranks), random_batches(steps, size))
    sides["apart"] = sides["alone"]  # both at once, each its own model: what the machine allows
    rates: dict[str, list[float]] = {side: [] for side in sides}
    computed: dict[str, list[float]] = {side: [] for side in sides}  # CPU seconds of process 0
    for turn in range(turns + 1):  # the first one warms up
        for side, (updates, batches) in sides.items():
            dist.barrier()
            if side == "alone" and together.rank:
                continue
            seconds, cpu = take_steps(updates, batches)
            if turn:
                computed[side].append(cpu)
                samples = len(batches) * BATCH * (1 if side == "alone" else together.size)
                rates[side].append(samples / seconds)
    if together.rank:
        return {}

    def ratios(side: str) -> list[float]:
        return [b / a for a, b in zip(rates["alone"], rates[side], strict=True)]

    return {
        "method": name,
        "samples_per_second": {side: statistics.median(r) for side, r in rates.items()},
        "ratio": statistics.median(ratios("together")),
        "ratio_without_exchanges": statistics.median(ratios("apart")),
        "ratios": ratios("together"),
        "cpu_of_exchanges": statistics.median(
            b / a - 1 for a, b in zip(computed["alone"], computed["together"], strict=True)
        ),
        "bytes_per_step": together.bytes_averaged // together.steps,
    }


def weight_differences(
    name: str, steps: int, double: bool = False, **settings: Any
) -> tuple[float, float | None]:
    """Return the largest differences to the weights of one process with the same batches.

    The first is that of all processes, the second, with 32 bits, of one from moved weights.
    """
    nets = []
    together = Processes(torch.device("cpu"))
    for side in ("alone", "together") if double else ("alone", "together", "moved"):
        net = make(name, **settings)
        net = net.double() if double else net
        torch.manual_seed(1)
        if side == "moved":
            with torch.no_grad():
                for p in net.model.parameters():
                    p.mul_(1 + ROUNDING * torch.randn(p.shape))
            torch.manual_seed(1)
        ranks: Ranks = together if side == "together" else ALONE
        updates = Updates(net, LoopSettings(steps=steps), processes=ranks)
        take_steps(updates, random_batches(steps, 16 if double else BATCH))
        nets.append({n: t.double() for n, t in net.state_dict().items()})
    one, *others = nets
    found = [max(float((one[n] - other[n]).abs().max()) for n in one) for other in others]
    return found[0], None if double else found[1]


def work(rank: int, port: int, quick: bool, answers: SimpleQueue[Any]) -> None:
    """Measure training in one of the processes."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_freed_memory()
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", address, rank=rank, world_size=PROCESSES)
    turns, steps = (1, 1) if quick else (5, 5)
    rows = [time_in_turns(name, turns, steps) for name in SETTINGS]
    checked = {
        optimizer: {
            name: weight_differences(name, 2 if quick else CHECKED_STEPS, **settings)
            for name in SETTINGS
        }
        for optimizer, settings in OPTIMIZERS.items()
    }
    dist.destroy_process_group()
    if rank == 0:
        answers.put((rows, checked))


def measure_training(quick: bool) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    answers: SimpleQueue[Any] = context.SimpleQueue()
    started = [
        context.Process(target=work, args=(rank, port, quick, answers)) for rank in range(PROCESSES)
    ]
    for process in started:
        process.start()
    rows, checked = answers.get()
    for process in started:
        process.join()
    return {
        "throughput_ratio": rows[0]["ratio"],
        "max_weight_difference": max(found for found, _ in checked["sgd"].values()),
        "bytes_per_step": rows[0]["bytes_per_step"],
        "training": rows,
        "weight_differences": {
            optimizer: {name: found for name, (found, _) in of_methods.items()}
            for optimizer, of_methods in checked.items()
        },
        "amplified_rounding": {
            optimizer: {name: found for name, (_, found) in of_methods.items()}
            for optimizer, of_methods in checked.items()
            if "64 bits" not in optimizer
        },
    }


def measure_cluster(quick: bool, only: str | None) -> dict[str, Any]:
    sizes = ["--repeats", "1", "--samples", "2048", "--steps", "5"] if quick else []
    command = [sys.executable, str(GRIDS_AND_SCORING), "--json", *sizes]
    if only is not None:
        command += ["--only", only]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--only", choices=["training", "grids", "scoring"], help="one of the three parts"
    )
    parser.add_argument("--add", type=Path, help="a document to which this part is added")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "processes": PROCESSES,
        "machine": f"{processor()}, {platform.platform()}",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "parts": [],
    }
    if args.add is not None:
        result |= json.loads(args.add.read_text())
    result["parts"].append(
        {
            "command": f"python {' '.join(sys.argv)}",
            "commit": commit_here(),
            "load": os.getloadavg()[0],
        }
    )
    if args.only in (None, "training"):
        result |= measure_training(args.quick)
    if args.only != "training":
        found = measure_cluster(args.quick, args.only)
        result |= {name: value for name, value in found.items() if name != "load"}
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name:24s} {value:.4g}" if isinstance(value, float) else f"{name:24s} {value}")


if __name__ == "__main__":
    main()
