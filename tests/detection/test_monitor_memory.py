"""The memory of a monitor does not grow with the number of different batch sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import TinyNet, tiny_batch

import unseen
from unseen.detection.chunks import pieces_of

BOUND_MB = 40

STREAM = """
import random, torch, unseen
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32)
        self.conv2, self.fc = nn.Conv2d(32, 8, 3), nn.Linear(8, 3)
    def forward(self, x):
        return self.fc(torch.relu(self.conv2(torch.relu(self.norm(self.conv1(x))))).mean((2, 3)))

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

torch.set_num_threads(1)
net = unseen.ERM(Net())
batches = [(torch.rand(50, 1, 20, 20), torch.arange(50) % 3) for _ in range(4)]
unseen.calibrate(net, batches, batches)
monitor = unseen.DomainMonitor(net)
sizes = random.Random(0)
for batch in range(1, 401):
    monitor.update(torch.rand(sizes.randint(1, 200), 1, 20, 20))
    if batch in (50, 400):
        print(resident())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_after_batches_of_many_sizes_stays_bounded():
    done = subprocess.run(
        [sys.executable, "-c", STREAM], capture_output=True, text=True, timeout=300, check=True
    )
    early, late = map(float, done.stdout.split())
    assert late - early < BOUND_MB


@pytest.mark.parametrize("n", [1, 2, 63, 64, 100, 257, 300])
def test_pieces_give_the_same_predictions_and_features(n):
    torch.manual_seed(0)
    net = unseen.ERM(TinyNet(norm=True)).eval()
    x = tiny_batch(n).x[0]
    whole, looks = net.detector.look(x), list(pieces_of(x, net.detector.look))
    assert {len(look.logits).bit_count() for look in looks} == {1}
    assert sum(len(look.logits) for look in looks) == n
    torch.testing.assert_close(torch.cat([look.logits for look in looks]), whole.logits)
    torch.testing.assert_close(torch.cat([look.features for look in looks]), whole.features)


def test_sample_that_is_not_finite_is_named_by_its_place_in_the_batch():
    net = unseen.ERM(TinyNet()).eval()
    x = tiny_batch(100).x[0]
    x[70, 0, 0, 0] = torch.nan
    with pytest.raises(unseen.UnseenError, match="sample index 70 of the batch"):
        list(pieces_of(x, net.detector.look))
