"""The machine: device, processor and memory."""

from __future__ import annotations

import contextlib
import platform
import sys
from pathlib import Path

import torch

from unseen.errors import UnseenError
from unseen.installed import keep_freed_memory as keep_freed_memory


def pick_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device of that name; "auto" is CUDA if available."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UnseenError(f'device must be auto, cpu or cuda, not "{name}"')
    if name == "cuda" and not torch.cuda.is_available():
        raise UnseenError("device cuda: torch sees no CUDA device here; use cpu or auto")
    return torch.device(name)


def processor() -> str:
    """Return the processor and its instruction set, which determines the last digits of a sum."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = (
            next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
        )
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def forget_peak_memory() -> None:
    """Reset the peak memory of this process, where the system allows it."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the high-water mark


def peak_memory(device: torch.device) -> int | None:
    """Return the peak memory in bytes: of torch on CUDA, else of the process; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    with contextlib.suppress(ImportError):
        import resource  # not on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
    return None
