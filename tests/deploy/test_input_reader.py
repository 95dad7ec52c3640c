"""Numbers mean the same to the reader as to the training; others are refused."""

from __future__ import annotations

import io

import numpy as np
import pytest

from unseen.data.own_files.array import ArrayReader
from unseen.data.own_files.image import ImageReader
from unseen.deploy.input_reader import InputReader
from unseen.errors import UnseenError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)
UNIT = PIXELS.astype(np.float32) / 255


def image_reader() -> InputReader:
    return InputReader(ImageReader(height=4, width=5), (3, 4, 5), "run", trained_on_files=True)


def array_reader(dtype: str) -> InputReader:
    return InputReader(ArrayReader(shape=(3, 4, 5), dtype=dtype), (3, 4, 5), "run")


def bare_reader(*shape: int, dtype: str = "float32") -> InputReader:
    return InputReader(None, shape, "run", dtype)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64", "int32", ">i4"])
@pytest.mark.parametrize("reader", [image_reader(), array_reader("uint8"), bare_reader(3, 4, 5)])
def test_whole_numbers_of_images_stand_for_0_to_255(reader, dtype):
    np.testing.assert_allclose(reader.batch([PIXELS.astype(dtype)]), UNIT[None], atol=1e-6)


def test_floats_are_kept():
    np.testing.assert_array_equal(image_reader().batch([UNIT]), UNIT[None])


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_whole_numbers_of_a_run_on_float_arrays_are_not_scaled(dtype):
    found = array_reader("float32").batch([PIXELS.astype(dtype)])
    np.testing.assert_array_equal(found, PIXELS[None].astype(np.float32))
    np.testing.assert_array_equal(bare_reader(2).batch([np.array([3, 7])]), [[3.0, 7.0]])


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (PIXELS.astype(int) + 1000, "stand for 0..255"),
        (PIXELS.astype(int) - 300, "stand for 0..255"),
        ((PIXELS > 128).astype(int), "may stand for"),
        (PIXELS.astype(np.float32), "trained on 0..1"),
        (UNIT * np.nan, "NaN"),
    ],
)
def test_numbers_of_another_range_are_refused(array, reason):
    with pytest.raises(UnseenError, match=reason):
        image_reader().read(array)


@pytest.mark.parametrize("value", [1.5, -(2.0**70), 2.0**70])
def test_model_of_tokens_refuses_what_is_no_token(value):
    reader = bare_reader(2, dtype="int64")
    with pytest.raises(UnseenError, match="whole numbers of int64"):
        reader.batch([np.array([value, 1.0])])
    np.testing.assert_array_equal(reader.batch([np.array([3.0, 1.0])]), [[3, 1]])


def test_array_file_of_floats_is_refused_by_a_run_on_uint8(tmp_path):
    file = io.BytesIO()
    np.save(file, UNIT)
    with pytest.raises(UnseenError, match="holds float32, expected uint8"):
        ArrayReader(shape=(3, 4, 5), dtype="uint8").read(io.BytesIO(file.getvalue()))
