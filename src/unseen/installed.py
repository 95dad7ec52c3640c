"""The installed package: its version, and memory for processes of its own. Imports no torch."""

from __future__ import annotations

import ctypes
import importlib.metadata
import sys


def package_version() -> str:
    """Return the installed version of this package."""
    try:
        return importlib.metadata.version("unseen")
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        return "unknown"


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
