"""The real digits, if UNSEEN_DATA has them."""

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
    """A linear classifier of edges, trained on MNIST only."""
    x, y = digits.load_images("mnist", "train", 0, 3_000)
    return RidgeClassifier(alpha=1.0).fit(edge_features(x), y.numpy())


# Accuracy of the classifier less a margin; with wrong labels or rotated pixels it would be 0.1.
READABLE = {"mnist": 0.9, "svhn": 0.3, "mnist_m": 0.4, "usps": 0.65}
READABLE_SHIFTS = {"photo": 0.7, "printed": 0.4, "street": 0.5, "scanner": 0.45, "inverted": 0.9}


@needs_real_data
@pytest.mark.parametrize("domain", READABLE)
def test_real_digits_match_their_labels(domain, reader):
    x, y = digits_benchmark.task().domain(domain).load("test").tensors
    assert x.shape[1:] == (3, 32, 32) and x.dtype == torch.uint8 and len(y.unique()) == 10
    assert reader.score(edge_features(x[:1_000]), y[:1_000].numpy()) > READABLE[domain]


@needs_real_data
@pytest.mark.parametrize("domain", READABLE_SHIFTS)
def test_every_shift_is_readable_and_changes_the_images(domain, reader):
    x, y = tuning.task().domain(domain).load("test").tensors
    assert x.shape == (1_000, 3, 32, 32) and len(y.unique()) == 10
    assert reader.score(edge_features(x), y.numpy()) > READABLE_SHIFTS[domain]
    held_out, _ = digits.load_images("mnist", "train", digits_shifts.FIRST, digits_shifts.END)
    changed = (x.float() - held_out.float()).abs().mean() / 255
    assert changed > 0.1, "a shift that leaves the pixels as they are chooses no settings"


@needs_real_data
@pytest.mark.parametrize("domain", READABLE_SHIFTS)
def test_every_shift_is_deterministic(domain, monkeypatch):
    pixels, labels = digits.read_original("mnist", "test")
    monkeypatch.setattr(digits_shifts, "_held_out", lambda root: (pixels[:50], labels[:50]))
    first, again = (digits_shifts._generate.__wrapped__(domain, data_root()) for _ in range(2))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
