"""From what a user has to what a model takes: files, bytes, texts, arrays, rows of a table.

The preprocessing is that of the training. It is recorded in a run's config.json and in the metadata
of an exported model. Imports no torch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.own_files.readers import Reader, reader_from
from unseen.deploy.reductions import Array
from unseen.errors import UnseenError

KEYS = ("path", "text", "x")  # of an item that is a mapping; a row of a table has its columns


NUMPY = b"\x93NUMPY"  # start of a .npy file


class InputReader:
    """Reads single samples and stacks them to a batch.

    Args:
        reader: of the data that the model was trained on; None if it takes arrays only.
        shape: of the model's input, without the batch; empty if it is not known.
        place: the run or file, for errors.
        dtype: of the model's input.
        trained_on_files: whether the training has read its data with this reader.
    """

    def __init__(
        self,
        reader: Reader | None,
        shape: Sequence[int | None],
        place: str,
        dtype: str = "float32",
        trained_on_files: bool = False,
    ) -> None:
        self.reader, self.shape, self.place = reader, tuple(shape), place
        self.trained_on_files = trained_on_files
        self.dtype = np.dtype(dtype)

    @classmethod
    def of(
        cls, recorded: Any, shape: Sequence[int | None], place: str, dtype: str = "float32"
    ) -> InputReader:
        """Return the reader for what a run records of its data.

        A model of a task was not trained on files. If it takes images (3, H, W), image files are
        read as RGB in 0..1 and resized to that size.
        """
        if isinstance(recorded, Mapping) and "modality" in recorded and "reader" in recorded:
            try:
                made = reader_from(str(recorded["modality"]), recorded["reader"])
            except (KeyError, TypeError, ValueError) as error:
                raise UnseenError(
                    f"{place}: the preprocessing is damaged ({type(error).__name__}: {error})"
                ) from error
            return cls(made, made.shape, place, dtype, trained_on_files=True)
        sizes = tuple(shape)
        if len(sizes) == 3 and sizes[0] == 3 and all(sizes):
            made = reader_from("image", {"height": sizes[1], "width": sizes[2]})
            return cls(made, sizes, place, dtype)
        return cls(None, sizes, place, dtype)

    @property
    def modality(self) -> str:
        """What a sample is: image, sound, text, array or table."""
        return "array" if self.reader is None else self.reader.modality

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature columns of a table."""
        return tuple(getattr(self.reader, "columns", ()))

    def batch(self, items: Sequence[Any]) -> Array:
        """Return samples as one array (N, ...), ready for `observe`."""
        return self.stack([self.read(item) for item in items])

    def stack(self, rows: Sequence[Array]) -> Array:
        """Return what `read` gave as one array of the model's type; images are scaled to 0..1."""
        if not rows:
            raise UnseenError("a batch needs at least one sample, there is none")
        x = np.stack(rows)
        if x.dtype == np.uint8 and self.dtype.kind == "f":
            return x.astype(self.dtype) / self.dtype.type(255)
        return x.astype(self.dtype)

    def read(self, item: Any) -> Array:
        """Return one sample; images and sounds as uint8, which stand for 0..1.

        Args:
            item: a mapping {"path": ...}, {"text": ...}, {"x": ...} or columns of a table; a Path;
                a string, which is a text for a model of texts and else a path; the bytes of a file;
                an array of the model's input, or of an image (H, W, 3); the numbers of a row.
        """
        if isinstance(item, Mapping):
            return self._mapping(item)
        if isinstance(item, Path) or (isinstance(item, str) and self.modality != "text"):
            return self._file(Path(item))
        if isinstance(item, str):
            return self._content(item)
        if isinstance(item, bytes | bytearray | memoryview):
            return self._bytes(bytes(item))
        return self._array(item)

    def _mapping(self, item: Mapping[str, Any]) -> Array:
        if self.modality == "table" and "x" not in item:
            if missing := [name for name in self.columns if name not in item]:
                raise UnseenError(f"lacks columns of the run: {', '.join(missing[:5])}")
            return self._row([item[name] for name in self.columns])
        given = [name for name in KEYS if item.get(name) is not None]
        if len(given) != 1:
            raise UnseenError(f"expected one of {', '.join(KEYS)}, not {', '.join(item) or 'none'}")
        value = item[given[0]]
        if given[0] != "x" and not isinstance(value, str | Path):
            raise UnseenError(f'"{given[0]}" must be a string, not {type(value).__name__}')
        if given[0] == "path":
            return self._file(Path(value))
        if given[0] == "text":
            if self.modality != "text":
                raise UnseenError(f"{self.place} reads {self.modality}, not text")
            return self._content(str(value))
        return self._array(value)

    def _file(self, path: Path) -> Array:
        if self.modality == "table":
            raise UnseenError(f"{self.place} reads rows of a table, not files")
        if self.modality == "text":
            from unseen.data.own_files.text import LARGEST
            from unseen.reading import read_text

            return self._content(read_text(path, LARGEST))
        if self.reader is None or (path.suffix.lower() == ".npy" and self.modality != "array"):
            return self._array(_load_array(path, path))
        return self._content(path)

    def _bytes(self, content: bytes) -> Array:
        if self.modality == "text":
            try:
                return self._content(content.decode())
            except UnicodeDecodeError as error:
                raise UnseenError(f"the text is not UTF-8: {error}") from None
        if self.modality == "table":
            raise UnseenError(f"{self.place} reads rows of a table, not files")
        if self.reader is None or (content[:6] == NUMPY and self.modality != "array"):
            return self._array(_load_array(io.BytesIO(content), "the bytes"))
        return self._content(io.BytesIO(content))

    def _content(self, content: Any) -> Array:
        assert self.reader is not None
        return self.reader.read(content)

    def _array(self, value: Any) -> Array:
        array = _numbers(value)
        if self.modality == "table":
            return self._row(array)
        wanted = self.shape
        if array.shape == getattr(self.reader, "stored", None):  # a matrix without its channel
            array = array.reshape([int(size or 0) for size in wanted])
        if self.modality == "image" and array.shape != wanted and array.dtype == np.uint8:
            return self._content(_as_png(array))
        if wanted and array.shape != wanted:
            sizes = ", ".join("any" if size is None else str(size) for size in wanted)
            raise UnseenError(f"expected an array ({sizes}), not {array.shape}")
        return self._typed(array)

    def _typed(self, array: Array) -> Array:
        """Return an array whose numbers mean the same to the model as those of the training."""
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UnseenError("the array holds NaN or infinity")
        if self.dtype.kind in "iu":
            return _whole_numbers(array, self.dtype)
        if array.dtype.kind not in "iu":
            if self.trained_on_files and self._takes_pixels:
                _check_unit(array)
            return array
        if self._takes_pixels:
            return array if array.dtype == np.uint8 else _pixels(array)
        return array.astype(self.dtype)  # so that `stack` does not scale it

    @property
    def _takes_pixels(self) -> bool:
        """Whether whole numbers stand for 0..255, which the training has scaled to 0..1."""
        if self.reader is None:
            return len(self.shape) == 3
        return self.reader.dtype == np.uint8

    def _row(self, values: Any) -> Array:
        try:
            row = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            raise UnseenError("a row of a table must hold numbers") from None
        if row.shape != (len(self.columns),) or not np.isfinite(row).all():
            raise UnseenError(
                f"expected {len(self.columns)} finite numbers ({', '.join(self.columns[:5])}), "
                f"not {row.shape}"
            )
        return self._content(row)


def _numbers(value: Any) -> Array:
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever has __array__ may raise anything
        raise UnseenError(f"expected an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise UnseenError(f"expected an array of numbers, not {type(value).__name__}")
    return array


def _pixels(array: Array) -> Array:
    """Return whole numbers 0..255 of any type as uint8."""
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    if low < 0 or high > 255:
        raise UnseenError(
            f"whole numbers stand for 0..255, these are {low}..{high}: send floats in 0..1, or "
            "uint8"
        )
    if high == 1:
        raise UnseenError(
            "the whole numbers 0 and 1 may stand for 0..255 or for 0..1: send floats in 0..1, or "
            "uint8"
        )
    return array.astype(np.uint8)


def _check_unit(array: Array) -> None:
    """Raise for floats far from 0..1, the range that the training has made of its files."""
    low, high = float(array.min(initial=0)), float(array.max(initial=0))
    if low < -1 or high > 2:
        raise UnseenError(
            f"the model was trained on 0..1, these floats are {low:.3g}..{high:.3g}: divide them "
            "by 255, or send uint8"
        )


def _whole_numbers(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers as the integers that a model takes."""
    known = np.iinfo(dtype)
    if (array < known.min).any() or (array > known.max).any() or (array != np.floor(array)).any():
        raise UnseenError(f"the model takes whole numbers of {dtype}; others are in the array")
    return array.astype(dtype)


def _load_array(file: Any, name: Any) -> Array:
    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UnseenError(f"{name} cannot be read as .npy: {error}") from None


def _as_png(array: Array) -> io.BytesIO:
    """Return an image (H, W), (H, W, 3), (H, W, 4) or (3, H, W) as the content of a file."""
    from PIL import Image

    channels_first = array.ndim == 3 and array.shape[0] == 3 and array.shape[2] not in (3, 4)
    image = array.transpose(1, 2, 0) if channels_first else array
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (3, 4)):
        raise UnseenError(f"expected an image (H, W, 3), not an array {array.shape}")
    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(content, "PNG", compress_level=0)
    content.seek(0)
    return content
