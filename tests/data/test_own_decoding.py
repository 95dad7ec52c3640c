"""Decoding of a user's files: the cache of decoded samples, worker processes, other modalities."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from own_images import draw, write_images

from unseen.data.own_files import samples as samples_module
from unseen.data.own_files.cache import DecodedSamples
from unseen.data.own_files.image import ImageReader
from unseen.data.own_files.samples import FileSamples
from unseen.errors import UnseenError
from unseen.tasks.own_files import task_from_files
from unseen.training.batches import (
    batches_of,
    random_part,
    stream,
    subsample,
    take,
    training_indices,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("UNSEEN_CACHE", str(folder))
    return folder


def test_cache_returns_what_was_put_and_misses_damage():
    cache = DecodedSamples("key", 5, (2, 3), np.dtype(np.uint8))
    sample = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert cache.get(4) is None and cache.missing() == 5
    cache.put(4, sample)
    again = DecodedSamples("key", 5, (2, 3), np.dtype(np.uint8))
    assert (again.get(4) == sample).all() and again.missing() == 4
    assert DecodedSamples("other", 5, (2, 3), np.dtype(np.uint8)).get(4) is None
    with cache.path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    assert again.get(4) is None


def test_cache_that_cannot_be_written_is_a_miss(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "file"))
    cache = DecodedSamples("key", 2, (1,), np.dtype(np.uint8))
    cache.put(0, np.ones(1, np.uint8))
    assert cache.get(0) is None and cache.missing() == 2
    assert caplog.text.count("cannot be written") == 1


def test_sample_is_decoded_once(tmp_path, monkeypatch):
    source = task_from_files(str(write_images(tmp_path / "a", 4))).source
    data = source.load("train")
    first = data[0][0]
    monkeypatch.setattr(ImageReader, "read", lambda *a: pytest.fail("decoded again"))
    assert torch.equal(source.load("train")[0][0], first)
    with pytest.raises(pytest.fail.Exception):
        data[1]


def test_changed_file_is_decoded_again(tmp_path):
    root = write_images(tmp_path / "a", 4)
    data = task_from_files(str(root)).source.load("train")
    name, before = data.names([0])[0], data[0][0]
    draw("dot", np.random.default_rng(99), light=1.0).save(name)
    data = task_from_files(str(root)).source.load("train")
    place = data.names(range(len(data))).index(name)
    assert not torch.equal(data[place][0], before)


def test_workers_yield_the_same_batches_in_order(tmp_path, monkeypatch):
    data = task_from_files(str(write_images(tmp_path / "a", 8))).source.load("train")
    parts = [training_indices(data, 6, 0, step) for step in range(5)]
    expected = [take(data, part) for part in parts]
    monkeypatch.setattr(samples_module, "WORKERS_FROM", 1)
    monkeypatch.setattr(DecodedSamples, "missing", lambda self: self.count)
    before = torch.get_rng_state()
    found = list(stream(data, iter(parts), 30))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a.x[0], b.x[0]) and torch.equal(a.y, b.y)
    part = subsample(data, 7)
    whole = torch.cat([b.y for b in stream(part, torch.arange(7).split(3), 7)])
    assert torch.equal(whole, take(part, torch.arange(7)).y)


def test_file_lost_while_workers_decode_is_named(tmp_path, monkeypatch):
    root = write_images(tmp_path / "a", 8)
    data = task_from_files(str(root)).source.load("train")
    monkeypatch.setattr(samples_module, "WORKERS_FROM", 1)
    lost = data.names([3])[0]
    os.remove(lost)
    with pytest.raises(UnseenError, match="does not exist") as error:
        list(batches_of(data, 4))
    assert lost in str(error.value) and "Traceback" not in str(error.value)


def test_random_part_of_files_keeps_no_batch_in_memory(tmp_path):
    data = task_from_files(str(write_images(tmp_path / "a", 8))).source.load("train")
    part = random_part(data, 10)
    assert len(part) == 1 and len(part[0].y) == 10
    assert torch.equal(next(iter(part)).x[0], part[0].x[0])
    assert isinstance(data, FileSamples) and not isinstance(part, list)
