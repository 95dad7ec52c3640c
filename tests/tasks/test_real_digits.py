"""The real digits, where UNSEEN_DATA has them: whole, and what their labels say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from edge_features import edge_features
from sklearn.linear_model import RidgeClassifier

from unseen.cli import data as cli_data
from unseen.data import digits, digits_shifts
from unseen.data.location import VARIABLE, data_root
from unseen.tasks import digits as digits_benchmark
from unseen.tasks.tuning import digits_shifts as tuning

REAL = Path(os.environ.get(VARIABLE, "")) / "digits"
needs_real_data = pytest.mark.skipif(
    not os.environ.get(VARIABLE) or not REAL.is_dir(),
    reason=f"{VARIABLE} names no folder with the real digits in it",
)


@needs_real_data
def test_the_real_files_are_whole(capsys):
    cli_data.check("digits", json_=True)
    told = {(r["domain"], r["split"]): r for r in json.loads(capsys.readouterr().out)["files"]}
    assert told["mnist", "train"]["n"] >= 12_000 and told["mnist", "test"]["n"] == 10_000
    assert told["usps", "test"]["n"] == 2_007 and told["usps", "train"]["n"] == 7_291
    assert all(r["n"] > 1_000 for r in told.values() if r["needed"])


@pytest.fixture(scope="module")
def reader() -> RidgeClassifier:
    """Reads digits by their edges, whatever their colours; it has seen MNIST only."""
    x, y = digits.load_images("mnist", "train", 0, 3_000)
    return RidgeClassifier(alpha=1.0).fit(edge_features(x), y.numpy())


# What such a reader reaches, less a margin: labels that are off by one, or pixels that are turned, leave it at 0.1.
READABLE = {"mnist": 0.9, "svhn": 0.3, "mnist_m": 0.4, "usps": 0.65}
READABLE_SHIFTS = {"photo": 0.7, "printed": 0.4, "street": 0.5, "scanner": 0.45, "inverted": 0.9}


@needs_real_data
@pytest.mark.parametrize("domain", READABLE)
def test_real_digits_are_what_their_labels_say(domain, reader):
    x, y = digits_benchmark.task().domain(domain).load("test").tensors
    assert x.shape[1:] == (3, 32, 32) and x.dtype == torch.uint8 and len(y.unique()) == 10
    assert reader.score(edge_features(x[:1_000]), y[:1_000].numpy()) > READABLE[domain]


@needs_real_data
@pytest.mark.parametrize("domain", READABLE_SHIFTS)
def test_every_shift_is_readable_shifted_and_the_same_bits_when_made_again(domain, reader):
    x, y = tuning.task().domain(domain).load("test").tensors
    assert x.shape == (1_000, 3, 32, 32) and len(y.unique()) == 10
    assert reader.score(edge_features(x), y.numpy()) > READABLE_SHIFTS[domain]
    again = digits_shifts._generate.__wrapped__(domain, data_root())
    assert torch.equal(again[0], x) and torch.equal(again[1], y)
    held_out, _ = digits.load_images("mnist", "train", digits_shifts.FIRST, digits_shifts.END)
    changed = (x.float() - held_out.float()).abs().mean() / 255
    assert changed > 0.1, "a shift that leaves the pixels as they are chooses no settings"
