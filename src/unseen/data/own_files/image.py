"""Read images of any format that Pillow knows, as uint8 (3, height, width)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from PIL import Image, ImageOps

from unseen.data.own_files.readers import Array, Fact, Reader
from unseen.errors import UnseenError

# Last bytes of a complete file, by format; decoding everything to find truncated files is slow.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}
TAIL = 64
LARGEST_VALUES = {"I": 65535, "I;16": 65535, "I;16B": 65535, "I;16L": 65535, "F": 1}  # by mode


class ImageReader(Reader):
    """Images in RGB, upright as their EXIF orientation says, resized to `size` if they differ."""

    modality: ClassVar = "image"
    worth_caching: ClassVar = True

    def __init__(self, *, height: int, width: int) -> None:
        self.height, self.width = height, width
        self.shape, self.dtype = (3, height, width), np.dtype(np.uint8)

    def state(self) -> dict[str, Any]:
        return {"height": self.height, "width": self.width}

    def read(self, content: Path | BinaryIO) -> Array:
        with _opened(content) as image:
            image.draft("RGB", (self.width, self.height))  # JPEGs decode faster to a smaller size
            upright = _rgb(ImageOps.exif_transpose(image))
        if upright.size != (self.width, self.height):
            upright = upright.resize((self.width, self.height), Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(upright).transpose(2, 0, 1))

    @staticmethod
    def look(path: Path, whole: bool) -> Fact:
        try:
            with _opened(path) as image:
                end = ENDS.get(image.format or "")
                width, height = image.size
                if image.getexif().get(0x0112, 1) >= 5:  # turned by 90 degrees
                    width, height = height, width
                if whole:
                    _rgb(image)
            if end is not None and end not in _tail(path):
                return Fact((), "the image is truncated")
            return Fact((height, width))
        except UnseenError as error:
            return Fact((), str(error).removeprefix(f"{path} "))


def read_label_map(path: Path, size: tuple[int, int] | None) -> Array:
    """Read a PNG of class indices as uint8 (height, width), resized by nearest neighbours."""
    with _opened(path) as image:
        if image.mode not in ("L", "P", "1"):
            raise UnseenError(
                f"{path} must be a label map, one channel of class indices 0 to 255; its mode is "
                f"{image.mode}"
            )
        if size is not None and image.size != (size[1], size[0]):
            image = image.resize((size[1], size[0]), Image.Resampling.NEAREST)
        return np.array(image, dtype=np.uint8)


class _opened:
    """An opened image; whatever Pillow raises becomes an UnseenError with the file's name."""

    def __init__(self, path: Path | BinaryIO) -> None:
        self.path = path
        self.image: Image.Image

    def __enter__(self) -> Image.Image:
        self.quiet = warnings.catch_warnings()
        self.quiet.__enter__()
        warnings.simplefilter("ignore")  # of damaged EXIF and large images
        try:
            self.image = Image.open(self.path)
        except BaseException as error:
            self.quiet.__exit__(None, None, None)
            raise _unreadable(self.path, error) from None
        return self.image

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.quiet.__exit__(None, None, None)
        self.image.close()
        if isinstance(error, Exception) and not isinstance(error, UnseenError):
            raise _unreadable(self.path, error) from None


def _unreadable(path: Path | BinaryIO, error: BaseException) -> BaseException:
    if not isinstance(error, Exception):  # Ctrl-C
        return error
    if isinstance(error, FileNotFoundError):
        return UnseenError(f"{path} does not exist")
    reason = "not an image" if "identify image" in str(error) else str(error)
    name = path if isinstance(path, Path) else "the file"
    return UnseenError(f"{name} cannot be read as an image: {reason}")


def _rgb(image: Image.Image) -> Image.Image:
    """Return an image in RGB; 16 bits and floats in 0..1 are scaled, where Pillow would clip."""
    if (top := LARGEST_VALUES.get(image.mode)) is not None:
        values = np.asarray(image, dtype=np.float64)
        # One scale for all images of a kind: a scale for each would hide which are dark.
        if not (values.min() >= 0 and values.max() <= top):
            raise ValueError(
                f"values run from {values.min():.4g} to {values.max():.4g}, expected 0 to {top}; "
                "save it with 8 or 16 bits, or as .npy"
            )
        image = Image.fromarray(np.uint8(values * (255 / top)))
    return image.convert("RGB")


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL))
        return file.read()
