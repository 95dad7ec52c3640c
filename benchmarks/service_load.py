"""Load of `unseen serve` on loopback, against calling the model directly in a loop.

    python benchmarks/service_load.py [--requests 2000] [--concurrent 32] [--model FILE] [--json]

Without --model, the backbone of digits is exported with a small accuracy estimator. The service
runs as its own process, with --state, on one thread of onnxruntime. Measured: requests that got no
answer, p50 and p99 of the latency, throughput against `scorer.observe` of one sample at a time
(before and after the load; the mean), memory of the service after a quarter and after all of the
requests, and whether a kill -9 in the middle of a second load loses an acknowledged sample.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import psutil

from unseen.deploy import open_scorer

DOMAINS = 8
SECONDS = 300.0  # after which a load is given up


def export_digits(path: Path) -> None:
    """Export the backbone of digits, untrained: the cost of a pass does not depend on weights."""
    import torch

    import unseen
    from unseen.deploy import export_onnx
    from unseen.detection import accuracy_points
    from unseen.models import DigitsNet

    torch.set_num_threads(1)
    torch.manual_seed(0)
    accuracy_points.BLENDS = 3  # the quality of the estimate does not matter here
    net = unseen.UncertaintyGuided(DigitsNet(), sites=["conv1"], embedding="fc2")
    x, y = torch.rand(200, 3, 32, 32), torch.randint(10, (200,))
    unseen.calibrate(net, [(x, y)], [(x, y)])
    shifts = {
        "noise": [lambda v, g: (v[0] + 0.3 * torch.randn(v[0].shape, generator=g),)],
        "dark": [lambda v, g: (0.5 * v[0],)],
        "bright": [lambda v, g: (v[0] + 0.5,)],
    }
    net.accuracy_estimator = unseen.AccuracyEstimator.fit(net, [(x, y)], shifts=shifts, samples=16)
    export_onnx(net, x[:3], path)


class Server:
    """`unseen serve` as a process."""

    def __init__(self, model: Path, state: Path) -> None:
        words = [sys.executable, "-m", "unseen", "serve", model, "--port", 0, "--state", state]
        self.process = subprocess.Popen(
            [*map(str, words), "--threads", "1", "--json"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("the service did not start")
            text += line
        self.url = json.loads(text)["url"]

    def memory(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def samples(self) -> dict[str, int]:
        with urlopen(f"{self.url}/state", timeout=60) as answer:
            return {d["domain"]: d["samples"] for d in json.load(answer)["domains"]}

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(60)


class Load:
    """Requests of one sample, over connections that stay open."""

    def __init__(self, url: str, samples: np.ndarray) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname, parts.port
        self.requests = [
            _request(sample, f"domain-{i % DOMAINS}") for i, sample in enumerate(samples)
        ]
        self.latencies: list[float] = []
        self.acknowledged = dict.fromkeys((f"domain-{i}" for i in range(DOMAINS)), 0)
        self.sent = dict(self.acknowledged)
        self.lost = 0

    async def run(self, total: int, concurrent: int, each: Any = None) -> float:
        """Send requests; return the seconds. `each` is called with the number of answers."""
        numbers = iter(range(total))

        async def work() -> None:
            reader, writer = await asyncio.open_connection(self.host, self.port)
            for number in numbers:
                domain = f"domain-{number % DOMAINS}"
                start = time.perf_counter()
                self.sent[domain] += 1
                try:
                    writer.write(self.requests[number % len(self.requests)])
                    status = await _answer(reader)
                except (OSError, asyncio.IncompleteReadError):
                    status = 0
                if status != 200:
                    self.lost += 1
                    return
                self.latencies.append(time.perf_counter() - start)
                self.acknowledged[domain] += 1
                if each is not None:
                    each(len(self.latencies))
            writer.close()

        start = time.perf_counter()
        await asyncio.wait_for(asyncio.gather(*(work() for _ in range(concurrent))), SECONDS)
        return time.perf_counter() - start


def _request(sample: np.ndarray, domain: str) -> bytes:
    file = io.BytesIO()
    np.save(file, sample[None])
    body = file.getvalue()
    head = (
        "POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/x-npy\r\n"
        f"domain: {domain}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length:")[1].split("\r\n")[0])
    await reader.readexactly(length)
    return int(head.split()[1])


def direct_rate(model: Path, samples: np.ndarray, calls: int) -> float:
    """Return calls of the model per second, one sample at a time, in this process."""
    scorer = open_scorer(model, threads=1)
    for sample in samples[:20]:
        scorer.observe(sample[None])
    start = time.perf_counter()
    for i in range(calls):
        scorer.observe(samples[i % len(samples)][None])
    return calls / (time.perf_counter() - start)


def measure(model: Path, folder: Path, requests: int, concurrent: int) -> dict[str, Any]:
    shape = open_scorer(model, threads=1).reader.shape
    samples = np.random.default_rng(0).random((512, *shape), dtype=np.float32)
    calls = min(requests, 1000)
    direct = [direct_rate(model, samples, calls)]
    server = Server(model, folder / "state")
    asyncio.run(Load(server.url, samples).run(4 * concurrent, concurrent))  # warm
    memory: list[int] = []
    load = Load(server.url, samples)

    def note(done: int) -> None:
        if done in (requests // 4, requests):
            memory.append(server.memory())

    seconds = asyncio.run(load.run(requests, concurrent, note))
    server.end(signal.SIGTERM)
    direct.append(direct_rate(model, samples, calls))
    milliseconds = 1000 * np.array(load.latencies)
    rate, expected = len(load.latencies) / seconds, sum(direct) / 2
    return {
        "requests": requests,
        "concurrent": concurrent,
        "answered": len(load.latencies),
        "lost": requests - len(load.latencies),
        "p50_ms": float(np.quantile(milliseconds, 0.5)),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "requests_per_second": rate,
        "direct_calls_per_second": expected,
        "throughput_ratio": rate / expected,
        "memory_mb": [round(m / 1e6, 1) for m in memory],
        "memory_growth": memory[-1] / memory[0] - 1,
        **kill_in_the_middle(model, folder / "killed", samples, requests // 2, concurrent),
        "machine_load": os.getloadavg()[0],
    }


def kill_in_the_middle(
    model: Path, state: Path, samples: np.ndarray, requests: int, concurrent: int
) -> dict[str, Any]:
    server = Server(model, state)
    load = Load(server.url, samples)

    def kill(done: int) -> None:
        if done == requests // 2:
            server.process.kill()

    asyncio.run(load.run(requests, concurrent, kill))
    server.process.wait(60)
    again = Server(model, state)
    found = again.samples()
    again.end(signal.SIGTERM)
    missing = sum(max(0, n - found.get(domain, 0)) for domain, n in load.acknowledged.items())
    surplus = sum(max(0, found.get(domain, 0) - n) for domain, n in load.sent.items())
    return {
        "acknowledged_before_kill": sum(load.acknowledged.values()),
        "acknowledged_and_missing": missing,
        "counted_and_never_sent": surplus,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--concurrent", type=int, default=32)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or folder / "digits.onnx"
        if options.model is None:
            export_digits(model)
        result = measure(model, folder, options.requests, options.concurrent)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for key, value in result.items():
        print(f"{key:<26s} {value:.3g}" if isinstance(value, float) else f"{key:<26s} {value}")


if __name__ == "__main__":
    main()
