"""Cost of a training step on the digits backbone at batch 32, relative to ERM and to an ideal.

    python benchmarks/step_cost.py [--json] [--repeats 7] [--quick]

One thread, one process, CPU time. What is compared runs in turns, and ratios are medians over the
turns, so that other load on the machine affects both sides. ERM is timed twice: `erm_ms` is the
usual PyTorch loop (torch.optim.Adam, default memory layout); `own_erm_ms` is ours, with
channels_last and the fused Adam. The ideal of a row is the time of its unavoidable multiply-adds
at the rate of a matrix product in the same turn. Rows of `predictions` compare a prediction with
one that also gives the score at the first site. `fused_noise` compares the whole step with
`nn.fused_noise` and with `functional.noise.perturb`.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen import ERM, UncertaintyGuided, calibrate
from unseen.api import Batch
from unseen.functional.noise import Act, Gaussian, Sign, perturb
from unseen.methods import LossWeights, Noise
from unseen.models import DigitsNet, WideResNet
from unseen.nn import site_noise
from unseen.nn.fused_noise import add_noise
from unseen.training.machine import keep_freed_memory

BATCH = 32
CONV1, CONV2 = 28 * 28 * 64 * 75, 10 * 10 * 128 * 1600  # multiply-adds of one sample
DENSE = 3200 * 1024 + 1024 * 1024 + 1024 * 10
FORWARD = CONV1 + CONV2 + DENSE
# The backward pass has one product for the weights and one for the inputs, but none for the images.
PLAIN = FORWARD + FORWARD + (FORWARD - CONV1)
PROCESS = psutil.Process()
META = {1: "first", 2: "second"}


@dataclass(frozen=True)
class Case:
    """Settings of a row: both sites and mixed draws, or the first site and no mixup."""

    draws: int
    order: int
    heads: str = "clean"
    first_site: bool = False

    def make(self) -> UncertaintyGuided:
        settings: dict[str, object] = {"draws": self.draws, "meta": META[self.order]}
        settings["noise"] = Noise(head_input=self.heads)  # type: ignore[arg-type]
        if self.first_site:
            settings |= {"sites": ["conv1"], "mixup": None}
        return guided(**settings)

    def __str__(self) -> str:
        where = "conv1, unmixed" if self.first_site else "both sites, mixed"
        return f"K={self.draws:2d} order {self.order} heads {self.heads:9s} {where:17s}"


def ideal_flops(case: Case, size: int) -> float:
    """Return the unavoidable operations of a step.

    These are the source step, conv1 and its head once, all draws behind it, and the dense layers
    of unmixed and mixed draws.
    """
    draws = case.draws
    work = PLAIN
    # conv1 under theta*, and a head twice as wide: forward and weights
    work += 2 * (CONV1 + 2 * CONV1)
    work += 3 * CONV2 * draws + 3 * DENSE * draws
    if not case.first_site:
        work += 3 * 2 * CONV2 * (1 if case.heads == "clean" else draws)
        work += 3 * DENSE * draws  # of the mixed draws
        work += 3 * CONV2  # clean features under theta*, for mixing and for heads
    if case.order == 2:
        # The Hessian-vector product runs the forward and the backward pass once more, both ways.
        work += 4 * FORWARD
    return 2.0 * size * work


def in_turns(acts: Mapping[str, Callable[..., object]], repeats: int) -> dict[str, list[float]]:
    """Return milliseconds of CPU time of each act; the first turn warms up."""
    times: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(repeats + 1):
        for name, act in acts.items():
            start = time.process_time()
            act()
            if turn:
                times[name].append(1e3 * (time.process_time() - start))
    return times


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


GEMM_SIDE = 1024


def matrix_product() -> Callable[[], object]:
    a, b = torch.rand(GEMM_SIDE, GEMM_SIDE), torch.rand(GEMM_SIDE, GEMM_SIDE)
    return lambda: a @ b


def plain_pytorch_step(batch: Batch) -> Callable[[], object]:
    torch.manual_seed(0)
    model = DigitsNet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(*batch.x), batch.y).backward()
        optimizer.step()

    return step


def guided(**settings: object) -> UncertaintyGuided:
    torch.manual_seed(0)
    chosen = {"sites": ["conv1", "conv2"], "embedding": "fc2", "warmup": 0, "adversary": None}
    return UncertaintyGuided(DigitsNet(), **{**chosen, **settings})


def memory_growth_mb(batch: Batch, steps: int, warm: int = 10) -> float:
    net = guided(draws=2, meta="second", weights=LossWeights(kl=0.1))
    for _ in range(warm):
        net.step(batch)
    gc.collect()
    before = PROCESS.memory_info().rss
    for _ in range(steps):
        net.step(batch)
    gc.collect()
    return (PROCESS.memory_info().rss - before) / 1e6


def unfused_noise(
    h: Tensor,
    gaussian: Gaussian,
    noise: Sequence[Tensor] | None,
    draws: int,
    batch: int,
    keep_clean: bool,
    unit: float = 1.0,
    sign: Sign = "positive",
    act: Act = "offset",
    amounts: Sequence[Tensor] | None = None,
) -> Tensor:
    """Do what `nn.fused_noise.add_noise` does with `perturb`, draw by draw."""
    slots = h.split(batch)
    parameters = [*map(Gaussian, gaussian.mu.split(batch), gaussian.sigma.split(batch))]
    out = [slots[0]] if keep_clean else []
    for k in range(draws):
        own = slots[0] if len(slots) == 1 else slots[len(slots) - draws + k]
        eps = None if noise is None else noise[k]
        amount = None if amounts is None else amounts[k]
        gaussian = parameters[k if len(parameters) > 1 else 0]
        out.append(perturb(own, gaussian, eps, unit, sign, act, amount))
    return torch.cat(out)


def fused_noise_rows(batch: Batch, repeats: int, quick: bool) -> list[dict[str, object]]:
    """Time the whole step with the fused and with the obvious noise."""
    printed = Noise(scale=None, per="feature", sign="positive")
    cases: dict[str, dict[str, Any]] = {
        "default, K=5": {"draws": 5},
        "as printed, K=10": {"draws": 10, "noise": printed},
    }
    if quick:
        cases = {"default, K=1": {"draws": 1}}
    rows: list[dict[str, object]] = []
    for name, settings in cases.items():
        nets = {add: guided(**settings) for add in (add_noise, unfused_noise)}

        def step(add: Callable[..., Tensor], nets: Any = nets) -> None:
            with mock.patch.object(site_noise, "add_noise", add):
                nets[add].step(batch)

        acts = {"fused": lambda: step(add_noise), "obvious": lambda: step(unfused_noise)}
        times = in_turns(acts, repeats)
        rows.append(
            {
                "case": name,
                "fused_ms": statistics.median(times["fused"]),
                "obvious_ms": statistics.median(times["obvious"]),
                "obvious_to_fused": ratio(times["obvious"], times["fused"]),
            }
        )
    return rows


def prediction_rows(repeats: int, quick: bool) -> list[dict[str, object]]:
    """Time predictions with and without the score at the first site."""
    models = {"digits": DigitsNet} if quick else {"digits": DigitsNet, "WRN-40-2": WideResNet}
    rows: list[dict[str, object]] = []
    for name, make in models.items():
        torch.manual_seed(0)
        embedding = "fc2" if name == "digits" else "pool"
        net = UncertaintyGuided(make(), sites=["conv1"], embedding=embedding)
        x = torch.rand(16 if quick else 256 if name == "digits" else 64, 3, 32, 32)
        calibrate(net, [Batch((x[:16],), torch.randint(10, (16,)))])
        acts = {
            "alone": lambda net=net, x=x: net.predict(x),
            "scored": lambda net=net, x=x: net.predict_with_uncertainty(x),
        }
        times = in_turns(acts, repeats if quick else 3 * repeats)
        rows.append(
            {
                "model": name,
                "samples": len(x),
                "predict_ms": statistics.median(times["alone"]),
                "ratio": ratio(times["scored"], times["alone"]),
            }
        )
    return rows


def step_row(case: Case, batch: Batch, repeats: int) -> dict[str, object]:
    """Time a step in turns with both ERM steps and a matrix product."""
    size, erm = len(batch.y), ERM(DigitsNet())
    net = case.make()
    times = in_turns(
        {
            "gemm": matrix_product(),
            "erm": plain_pytorch_step(batch),
            "own_erm": lambda: erm.step(batch),
            "step": lambda: net.step(batch),
        },
        repeats,
    )
    flops = ideal_flops(case, size)
    ideal = [flops * ms / (2 * GEMM_SIDE**3) for ms in times["gemm"]]
    return {
        "draws": case.draws, "order": case.order, "heads": case.heads,
        "first_site": case.first_site,
        "ms": statistics.median(times["step"]),
        "erm_ms": statistics.median(times["erm"]),
        "own_erm_ms": statistics.median(times["own_erm"]),
        "gemm_gflops": 2 * GEMM_SIDE**3 / statistics.median(times["gemm"]) / 1e6,
        "ratio_to_erm": ratio(times["step"], times["erm"]),
        "ratio_to_own_erm": ratio(times["step"], times["own_erm"]),
        "ratio_to_ideal": ratio(times["step"], ideal),
        "gflop": flops / 1e9,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }  # fmt: skip


def measure(repeats: int, quick: bool) -> dict[str, object]:
    torch.manual_seed(0)
    size = 4 if quick else BATCH
    batch = Batch((torch.rand(size, 3, 32, 32),), torch.randint(10, (size,)))
    cases = [Case(1, 1, first_site=True)]
    cases += [Case(draws, order) for draws in (1, 5, 10, 15) for order in (1, 2)]
    cases += [Case(10, 1, "perturbed"), Case(10, 2, "perturbed")]
    if quick:
        cases = [Case(1, 1, first_site=True), Case(1, 2, "perturbed")]
    rows = []
    for case in cases:
        rows.append(row := step_row(case, batch, repeats))
        print(f"{case}: {row['ratio_to_own_erm']:.1f}x own ERM", file=sys.stderr)
        gc.collect()
    predictions = prediction_rows(repeats, quick)
    return {
        **{
            key: statistics.median(row[key] for row in rows)  # type: ignore[type-var]
            for key in ("erm_ms", "own_erm_ms", "gemm_gflops")
        },
        "rows": rows,
        "predict_ms": predictions[0]["predict_ms"],
        "predict_and_score_ratio": predictions[0]["ratio"],
        "predictions": predictions,
        "fused_noise": fused_noise_rows(batch, 1 if quick else repeats, quick),
        "memory_growth_mb": memory_growth_mb(batch, *((2, 1) if quick else (200,))),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--repeats", type=int, default=7, help="timed steps per row (default: 7)")
    parser.add_argument(
        "--quick", action="store_true", help="two rows, few samples, to see that it runs"
    )
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_freed_memory()
    result = measure(args.repeats, args.quick)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(
        f"ERM {result['erm_ms']:.0f} ms, ours {result['own_erm_ms']:.0f} ms, "
        f"GEMM {result['gemm_gflops']:.0f} GFLOP/s, load {result['load']:.1f}"
    )
    for row in result["rows"]:  # type: ignore[attr-defined]
        case = Case(row["draws"], row["order"], row["heads"], row["first_site"])
        print(
            f"{case} {row['ms']:6.0f} ms  {row['ratio_to_erm']:5.1f}x ERM  "
            f"{row['ratio_to_own_erm']:5.1f}x own ERM  {row['ratio_to_ideal']:4.2f}x ideal  "
            f"peak {row['peak_mb']:.0f} MB"
        )
    for row in result["fused_noise"]:  # type: ignore[attr-defined]
        print(
            f"fused noise, {row['case']}: {row['fused_ms']:.0f} ms CPU, obvious "
            f"{row['obvious_ms']:.0f} ms ({row['obvious_to_fused']:.2f}x)"
        )
    for row in result["predictions"]:  # type: ignore[attr-defined]
        print(
            f"predict {row['samples']} samples, {row['model']}: {row['predict_ms']:.0f} ms, "
            f"with the score {row['ratio']:.2f}x"
        )
    print(f"memory over 200 steps: {result['memory_growth_mb']:+.1f} MB")


if __name__ == "__main__":
    main()
