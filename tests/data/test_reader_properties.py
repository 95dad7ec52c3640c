"""Every reader of data either reads a file or raises an UnseenError that names it."""

from __future__ import annotations

import gzip
import io
import json
import warnings
from functools import cache

import numpy as np
import pytest
import soundfile
from damage import any_bytes, quick
from digit_files import idx
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from unseen.data import amazon_reviews, cifar10, cifar10_c, digits, driving, speech, synthia
from unseen.data.cache import cached_arrays
from unseen.errors import UnseenError

RNG = np.random.default_rng(0)


def saved(save, *args, **options) -> bytes:
    file = io.BytesIO()
    save(file, *args, **options)
    return file.getvalue()


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def usps() -> bytes:
    return b"".join(b"%d.0 " % label + b"0.5 " * 256 + b"\n" for label in range(3))


def mat() -> bytes:
    x, y = RNG.integers(0, 256, (32, 32, 3, 2), np.uint8), np.array([[1], [10]], np.uint8)
    return saved(savemat, {"X": x, "y": y})


def counts() -> bytes:
    shape = np.array([2, amazon_reviews.COLUMNS])
    indptr, y = np.array([0, 1, 2]), np.array([-1, 1])
    return saved(np.savez, data=[1, 2], indices=[3, 4], indptr=indptr, shape=shape, y=y)


def reviews() -> bytes:
    rows = [{"title": "a", "text": "good", "rating": 5.0}, {"text": "bad", "rating": 1.0}]
    return "\n".join(map(json.dumps, rows)).encode()


def wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, RNG.normal(0, 0.1, 800), 16000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def classes() -> bytes:
    table = {"names": list(driving.CLASSES), "lookup": {"camvid11": [0, 1, 255]}}
    return json.dumps({"common10": table}).encode()


def read_all_records(path):
    return cifar10.read_records(path, 0, cifar10._count_records(path))


READERS = {  # name of the file: a valid file, its reader
    "images.idx": (
        lambda: idx(RNG.integers(0, 256, (2, 28, 28))),
        lambda path: digits._read_idx(path, 3),
    ),
    "images.gz": (
        lambda: gzip.compress(idx(RNG.integers(0, 256, (2, 28, 28)))),
        lambda path: digits._read_idx(path, 3),
    ),
    "zip.test": (usps, digits._read_usps),
    "test_32x32.mat": (mat, digits._read_mat),
    "0.png": (lambda: png(RNG.integers(0, 256, (32, 32, 3), np.uint8)), digits._read_png),
    "test_batch.bin": (lambda: bytes(3073) + bytes([9]) + bytes(3072), read_all_records),
    "fog.npy": (
        lambda: saved(np.save, np.zeros((4, 2, 2, 3), np.uint8)),
        lambda path: np.array(cifar10_c._open_array(path)),
    ),
    "clip.wav": (wav, speech.read_clip),
    "counts.npz": (counts, amazon_reviews._read_npz),
    "counts.svmlight": (lambda: b"1 3:2 4:1\n-1 5:1\n", amazon_reviews._read_svmlight),
    "reviews.jsonl": (reviews, amazon_reviews._read_jsonl),
    "scene.png": (
        lambda: png(RNG.integers(0, 256, (6, 8, 3), np.uint8)),
        lambda path: driving.read_image(path, (4, 3)),
    ),
    "label.png": (
        lambda: png(np.zeros((6, 8), np.uint8)),
        lambda path: synthia.read_label(path, (4, 3)),
    ),
    "classes.json": (classes, lambda path: driving.class_lookup("camvid_day", path.parent)),
}


@cache
def valid(name: str) -> bytes:
    return READERS[name][0]()


@pytest.mark.parametrize("name", [n for n in READERS if n not in ("label.png", "classes.json")])
def test_valid_file_is_read(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(valid(name))
    READERS[name][1](path)


@pytest.mark.parametrize("name", READERS)
def test_damaged_file_is_read_or_named(name, tmp_path):
    path, read = tmp_path / name, READERS[name][1]

    @quick
    @given(any_bytes(valid(name)))
    def check(content):
        path.write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except UnseenError as error:
            assert path.name in str(error)

    check()


@pytest.mark.parametrize("name", ["negative.review", "positive.review"])
def test_damaged_review_blocks_are_read_or_named(name, tmp_path):
    block = b"<review><title>t</title><rating>5.0</rating><review_text>x</review_text></review>\n"
    for other in ("negative.review", "positive.review"):
        (tmp_path / other).write_bytes(2 * block)

    @quick
    @given(any_bytes(2 * block))
    def check(content):
        (tmp_path / name).write_bytes(content)
        try:
            rows = amazon_reviews._read_blocks(tmp_path)
            assert all(1 <= rating <= 5 for _, _, rating in rows)
        except UnseenError as error:
            assert name in str(error)

    check()


@quick
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), st.randoms())
def test_idx_reads_what_was_written(shape, random):
    array = np.frombuffer(random.randbytes(int(np.prod(shape))), np.uint8).reshape(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "_read_bytes", lambda path, layout: idx(array))
        assert np.array_equal(digits._read_idx(None, len(shape)), array)


def test_damaged_cache_is_computed_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path))
    right = {"x": np.arange(5)}
    cached_arrays("toy", "a", 1, lambda: right)
    (path,) = tmp_path.rglob("*.npz")
    content = path.read_bytes()

    @quick
    @given(any_bytes(content))
    def check(damage):
        path.write_bytes(damage)
        assert np.array_equal(cached_arrays("toy", "a", 1, lambda: right)["x"], right["x"])

    check()
