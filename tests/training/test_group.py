"""Processes that torchrun starts join a group and leave it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

JOIN_AND_LEAVE = """
import os
from pathlib import Path

import torch.distributed as dist

import unseen.training.group as group

group.started_by_torchrun = lambda: True
with group.process_group("cpu") as leads:
    assert leads
    dist.barrier()
    import torch._dynamo  # as training does; it imports functions with the group as a default
names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
print([name for name in names if "gloo" in name])
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    """Else the process is aborted at its end now and then, and torchrun calls the run failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, "-c", JOIN_AND_LEAVE],
        env={**os.environ, **group},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
