"""The machine: device, processor and memory."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
from pathlib import Path

import torch

from unseen.errors import UnseenError


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


def keep_freed_memory() -> None:
    """Let the C library keep freed memory, which speeds up a training step by about 15 %.

    Only for processes of our own, such as the command line: a library must not change the
    allocator of its host.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


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
