"""Cost of a training step on the digits backbone at batch 32, relative to ERM and to an ideal.

    python benchmarks/step_cost.py [--json] [--repeats 7] [--quick]

One thread, medians, one process. ERM is timed twice: `erm_ms` is the usual PyTorch loop
(torch.optim.Adam, default memory layout), the reference of the published numbers; `own_erm_ms` is
ours, with channels_last and the fused Adam. The ideal of a row is the time of its unavoidable
multiply-adds at the matrix-product rate measured in the same run. `fused_noise` compares the whole
step with `nn.fused_noise` and with `functional.noise.perturb`, in CPU time of interleaved steps.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from unittest import mock

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen import ERM, UncertaintyGuided, calibrate
from unseen.api import Batch
from unseen.functional.noise import Act, Gaussian, Sign, perturb
from unseen.methods import LossWeights, Noise
from unseen.models import DigitsNet
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


def ideal_flops(draws: int, order: int, heads: str, size: int) -> float:
    """Return the unavoidable operations of a step.

    These are the source step, conv1 and its head once, all draws behind it, and the dense layers
    of mixed and unmixed draws.
    """
    head_passes = 1 if heads == "clean" else draws
    work = PLAIN
    work += 2 * (
        CONV1 + 2 * CONV1
    )  # conv1 under theta*, and a head twice as wide: forward and weights
    work += 3 * 2 * CONV2 * head_passes
    work += 3 * CONV2 * draws + 3 * DENSE * 2 * draws
    work += 3 * CONV2  # clean features under theta*, for mixing and for heads
    if order == 2:
        work += (
            4 * FORWARD
        )  # the Hessian-vector product runs the forward and the backward pass once more, both ways
    return 2.0 * size * work


def median_ms(act: Callable[[], object], repeats: int, warm: int = 2) -> float:
    for _ in range(warm):
        act()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def gemm_gflops(repeats: int) -> float:
    a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
    return 2 * 1024**3 / median_ms(lambda: a @ b, repeats) / 1e6


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
    return UncertaintyGuided(
        DigitsNet(),
        sites=["conv1", "conv2"],
        embedding="fc2",
        warmup=0,
        adversary=None,
        **settings,  # type: ignore[arg-type]
    )


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
    cases = {"default, K=5": {"draws": 5}, "as printed, K=10": {"draws": 10, "noise": printed}}
    if quick:
        cases = {"default, K=1": {"draws": 1}}
    rows: list[dict[str, object]] = []
    for name, settings in cases.items():
        nets = {add: guided(**settings) for add in (add_noise, unfused_noise)}
        times: dict[object, list[float]] = {add: [] for add in nets}
        for repeat in range(repeats + 1):  # the first one warms up
            for add, net in nets.items():
                with mock.patch.object(site_noise, "add_noise", add):
                    start = time.process_time()
                    net.step(batch)
                if repeat:
                    times[add].append(1e3 * (time.process_time() - start))
        pairs = zip(times[unfused_noise], times[add_noise], strict=True)
        rows.append(
            {
                "case": name,
                "fused_ms": statistics.median(times[add_noise]),
                "obvious_ms": statistics.median(times[unfused_noise]),
                "obvious_to_fused": statistics.median(slow / fast for slow, fast in pairs),
            }
        )
    return rows


def measure(repeats: int, quick: bool) -> dict[str, object]:
    torch.manual_seed(0)
    size = 4 if quick else BATCH
    batch = Batch((torch.rand(size, 3, 32, 32),), torch.randint(10, (size,)))
    gemm = gemm_gflops(2 if quick else 20)
    erm = ERM(DigitsNet())
    plain = plain_pytorch_step(batch)
    cases = [(k, order, "clean") for k in (1, 5, 10, 15) for order in (1, 2)] + [
        (10, 1, "perturbed"),
        (10, 2, "perturbed"),
    ]
    if quick:
        cases = [(1, 1, "clean"), (1, 2, "perturbed")]
    rows = []
    for draws, order, heads in cases:
        # ERM is timed beside every row, so that other load on the machine affects both.
        erm_ms, own_ms = median_ms(plain, repeats), median_ms(lambda: erm.step(batch), repeats)
        net = guided(
            draws=draws,
            meta=META[order],
            noise=Noise(head_input=heads),  # type: ignore[arg-type]
        )
        ms = median_ms(lambda net=net: net.step(batch), repeats)  # type: ignore[misc]
        ideal = ideal_flops(draws, order, heads, size) / gemm / 1e6
        rows.append(
            {
                "draws": draws, "order": order, "heads": heads,
                "ms": ms, "erm_ms": erm_ms, "own_erm_ms": own_ms,
                "ratio_to_erm": ms / erm_ms, "ratio_to_own_erm": ms / own_ms,
                "ratio_to_ideal": ms / ideal,
                "gflop": ideal_flops(draws, order, heads, size) / 1e9,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            }
        )  # fmt: skip
        print(
            f"K={draws} order {order} heads {heads}: {ms:.0f} ms, {ms / erm_ms:.1f}x ERM",
            file=sys.stderr,
        )
        del net
        gc.collect()
    net = guided(draws=1)
    calibrate(net, [batch])
    x = torch.rand(16 if quick else 256, 3, 32, 32)
    pairs = [
        (
            median_ms(lambda: net.predict(x), repeats),
            median_ms(lambda: net.predict_with_uncertainty(x), repeats),
        )
        for _ in range(3)
    ]
    predict_ms = statistics.median(p for p, _ in pairs)
    return {
        "erm_ms": statistics.median(row["erm_ms"] for row in rows),  # type: ignore[type-var]
        "own_erm_ms": statistics.median(row["own_erm_ms"] for row in rows),  # type: ignore[type-var]
        "gemm_gflops": gemm,
        "rows": rows,
        "predict_ms": predict_ms,
        "predict_and_score_ratio": statistics.median(both / alone for alone, both in pairs),
        "fused_noise": fused_noise_rows(batch, 1 if quick else repeats, quick),
        "memory_growth_mb": memory_growth_mb(batch, *((2, 1) if quick else (200,))),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
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
        f"GEMM {result['gemm_gflops']:.0f} GFLOP/s"
    )
    for row in result["rows"]:  # type: ignore[attr-defined]
        print(
            f"K {row['draws']:2d}  order {row['order']}  heads {row['heads']:9s}  "
            f"{row['ms']:6.0f} ms  {row['ratio_to_erm']:5.1f}x ERM  "
            f"{row['ratio_to_own_erm']:5.1f}x own ERM  {row['ratio_to_ideal']:4.2f}x ideal  "
            f"peak {row['peak_mb']:.0f} MB"
        )
    for row in result["fused_noise"]:  # type: ignore[attr-defined]
        print(
            f"fused noise, {row['case']}: {row['fused_ms']:.0f} ms CPU, obvious "
            f"{row['obvious_ms']:.0f} ms ({row['obvious_to_fused']:.2f}x)"
        )
    print(
        f"predict {result['predict_ms']:.0f} ms, "
        f"with the score {result['predict_and_score_ratio']:.2f}x"
    )
    print(f"memory over 200 steps: {result['memory_growth_mb']:+.1f} MB")


if __name__ == "__main__":
    main()
