"""Every parser of settings, records and tensors either reads a text or raises an UnseenError."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch
from damage import any_bytes, quick
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

import unseen
from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.monitor_file import read_monitor
from unseen.errors import UnseenError
from unseen.experiments.adapt_grid import read_adaptation_grid
from unseen.experiments.grid import plan_runs, read_grid
from unseen.nn.tensor_files import read_metadata, read_tensors
from unseen.reading import parse_json, read_json, read_json_lines, read_safetensors, read_toml
from unseen.schema.run_files import read_records
from unseen.schema.settings import parse_settings

GRID = b"""task = "mini_digits"
seeds = [0, 1]
[settings]
steps = 10
[methods.erm]
[methods.ours]
method = "uncertainty_guided"
draws = 2
"""
RECORDS = b"".join(
    json.dumps({"step": step, "loss": 0.5, "kind": "train"}).encode() + b"\n" for step in range(3)
)


def tensors() -> bytes:
    return save({"mean": torch.zeros(3), "held_out": torch.ones(4, 3)}, {"unseen": "{}"})


@cache
def net():
    torch.manual_seed(0)
    return unseen.ERM(nn.Linear(3, 2))


def calibrate(path):
    detector = net().make_detector()
    detector.load_state_dict(read_tensors(path))


READERS = {  # name of the file: a valid file or one that is close to it, its reader
    "config.json": (lambda: b'{"task": "a", "steps": [1, 2.5, null]}', read_json),
    "records.jsonl": (lambda: RECORDS, lambda path: list(read_json_lines(path))),
    "torn.jsonl": (lambda: RECORDS, lambda path: read_records(path, torn=True)),
    "settings.toml": (lambda: GRID, read_toml),
    "grid.toml": (lambda: GRID, lambda path: plan_runs(read_grid(path))),
    "adaptation.toml": (lambda: GRID, read_adaptation_grid),
    "header.safetensors": (tensors, read_safetensors),
    "state.safetensors": (tensors, read_tensors),
    "meta.safetensors": (tensors, read_metadata),
    "source.safetensors": (tensors, calibrate),
    "monitor.safetensors": (tensors, lambda path: read_monitor(path, torch.zeros(3))),
    "accuracy.safetensors": (tensors, lambda path: AccuracyEstimator.load(path, net())),
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_file_is_read_or_named(name, tmp_path):
    path = tmp_path / name
    make, read = READERS[name]

    @quick
    @given(any_bytes(make()))
    def check(content):
        path.write_bytes(content)
        try:
            read(path)
        except UnseenError as error:
            assert name in str(error) or name == "source.safetensors"

    check()


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@quick
@given(values)
def test_json_reads_what_was_written(value):
    text = json.dumps(value)
    try:
        assert parse_json(text, "here") == value
    except UnseenError as error:  # a null character or half a surrogate pair
        assert "null character" in str(error)


@quick
@given(st.lists(st.text(max_size=20), max_size=4))
def test_settings_of_any_words_are_parsed_or_refused(words):
    try:
        parsed = parse_settings(words)
    except UnseenError:
        return
    assert isinstance(parsed, dict) and all("=" in word for word in words)


@quick
@given(
    st.sampled_from(["lr", "draws", "noise.scale"]),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_numbers_of_settings_are_kept(name, value):
    parsed = parse_settings([f"{name}={value!r}"])
    for part in name.split("."):
        parsed = parsed[part]
    assert parsed == value
