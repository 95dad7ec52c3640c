"""Readers of JSON, TOML and tensors refuse what is damaged or hostile with one UnseenError."""

from __future__ import annotations

import os

import numpy as np
import pytest
import safetensors.numpy

from unseen import UnseenError
from unseen.reading import (
    LARGEST_JSON,
    LARGEST_LINE,
    MissingFile,
    read_json,
    read_json_lines,
    read_json_value,
    read_safetensors,
    read_toml,
)

READERS = [read_json, read_toml, read_safetensors, lambda path: [*read_json_lines(path)]]
DEEP = "lists and tables are nested more than 50 deep"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "Expecting value"),
        (b"[" * 10**5, DEEP),
        (b"[" * 10**5 + b"]" * 10**5, DEEP),
        (b'{"a":' * 10**5 + b"1" + b"}" * 10**5, DEEP),
        (b'{"a":' * 51 + b"1" + b"}" * 51, DEEP),
        (b'{"a": 1' + b"0" * 400 + b"}", "an integer of 401 digits"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "an integer of 5001 digits"),
        (b'{"a": 1, "b": 2, "a": 3}', 'the key "a" occurs twice'),
        (b'{"a": "\xe4"}', "byte 7 is not UTF-8 text"),
        (b"\xff\xfe{\0}\0", "byte 0 is not UTF-8 text"),
        (b'{"\\u0000": 1}', "a null character"),
        (b'{"a": "\\ud800"}', "half a surrogate pair"),
        (b"\0" * 100, "Expecting value"),
        (b"[]", "must hold a JSON object, not a list"),
        (b"1e400", "must hold a JSON object, not a float"),
    ],
)
def test_json_that_is_no_valid_object_is_refused(tmp_path, content, text):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UnseenError, match=text) as error:
        read_json(path)
    assert str(path) in str(error.value)


def test_json_at_the_limits_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a":' * 49 + b"[-9223372036854775808]" + b"}" * 49)
    value = read_json(path)
    for _ in range(49):
        value = value["a"]
    assert value == [-(2**63)]


@pytest.mark.parametrize(
    "read", [read_json, read_toml, read_safetensors, lambda p: [*read_json_lines(p)]]
)
def test_only_regular_files_are_opened(tmp_path, read):
    cases = {"folder": os.mkdir, "pipe": os.mkfifo}
    cases["loop"] = lambda path: os.symlink("loop", path)
    cases["device"] = lambda path: os.symlink("/dev/zero", path)
    for name, make in cases.items():
        make(tmp_path / name)
        with pytest.raises(UnseenError, match=f"{name} cannot be read"):
            read(tmp_path / name)
    os.symlink("nowhere", tmp_path / "dangling")
    with pytest.raises(MissingFile, match="dangling does not exist"):
        read(tmp_path / "dangling")


@pytest.mark.parametrize(
    "read", [read_json, read_toml, read_safetensors, lambda p: [*read_json_lines(p)]]
)
def test_huge_files_are_refused_before_they_are_read(tmp_path, read):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)  # no memory holds a terabyte; the file takes no space
    with pytest.raises(UnseenError, match="huge"):
        read(tmp_path / "huge")


def test_limits_are_above_what_is_published():
    assert LARGEST_JSON > 2**24 and LARGEST_LINE > 2**16


def test_lines_are_read_one_by_one(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"a": 1}\n[[\n3')
    first, second, third = read_json_lines(path)
    assert first == ({"a": 1}, True) and third == (3, False)
    assert isinstance(second[0], UnseenError) and "line 2" in str(second[0])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a = " + b"[" * 10**5 + b"]" * 10**5, DEEP),
        (b"a = " + b"[" * 60 + b"]" * 60, DEEP),
        (b".".join([b"a"] * 60) + b" = 1", DEEP),
        (b"a." * 10**5 + b"b = 1", "more than 200 dots"),
        (b"a = 0x" + b"f" * 5000, "an integer of 20000 bits"),
        (b"a = 1" + b"0" * 5000, "not valid TOML"),
        (b'a = "\\u0000"', "a null character"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"a = '\xe4'", "not UTF-8"),
    ],
)
def test_hostile_toml_is_refused(tmp_path, content, text):
    (tmp_path / "grid.toml").write_bytes(content)
    with pytest.raises(UnseenError, match=text):
        read_toml(tmp_path / "grid.toml")


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[:-1],
        lambda b: b + b"\0",
        lambda b: b"\xff" * 8 + b[8:],
        lambda b: b"\0" * 8 + b[8:],
        lambda b: b"\x02" + b"\0" * 7 + b"[]",
        lambda b: b"\x08" + b"\0" * 7 + b'{"a": 3}',
        lambda b: b"\x10" + b"\0" * 7 + b"[" * 16,
    ],
)
def test_tensors_whose_header_does_not_fit_are_refused(tmp_path, damage):
    path = tmp_path / "source.safetensors"
    path.write_bytes(damage(safetensors.numpy.save({"a": np.zeros(3)})))
    with pytest.raises(UnseenError, match="is not a complete safetensors file"):
        read_safetensors(path)


def test_any_json_value_is_read(tmp_path):
    (tmp_path / "summary.json").write_text("[1, NaN]")
    assert read_json_value(tmp_path / "summary.json")[0] == 1
