"""What a request carries: images, texts or arrays, decoded without trusting any of it."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from unseen.deploy.reductions import Array
from unseen.deploy.service.bodies import Part, check_count
from unseen.deploy.service.limits import Limits
from unseen.deploy.service.problems import Problem, invalid, too_large

Kind = Literal["images", "texts", "arrays"]
FIELDS: tuple[Kind, ...] = ("images", "texts", "arrays")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")  # formats with a small header to check
LARGEST_SIDE = 65_535  # of an image, in pixels; one of 1 x 24,000,000 takes seconds to decode
MOST_AXES = 16
NPY = b"\x93NUMPY"
NPY_TYPES = ("application/x-npy", "application/octet-stream", "application/npy")


@dataclass(frozen=True)
class Payload:
    """Samples of one request."""

    kind: Kind
    contents: Any  # list of bytes or texts; of arrays, one array (N, ...) or a dict of them
    names: tuple[str, ...] = ()  # of the samples, for messages

    @property
    def n(self) -> int:
        first = next(iter(self.contents.values())) if isinstance(self.contents, dict) else None
        return len(self.contents if first is None else first)


def payload_of(parts: Sequence[Part], limits: Limits) -> Payload:
    """Read the files of a request, or its body as its only part."""
    if len(parts) == 1 and parts[0].kind in ("application/json", "text/json"):
        return from_json(parts[0].content, limits)
    if len(parts) == 1 and parts[0].kind == "text/plain":
        return Payload("texts", [_text(parts[0])], ("the body",))
    arrays = [part.content[: len(NPY)] == NPY or part.kind in NPY_TYPES for part in parts]
    if all(arrays):
        return _from_npy(parts, limits)
    if any(arrays):
        raise invalid("send either images or arrays in one request, not both")
    for part in parts:
        if part.kind and not part.kind.startswith("image/"):
            raise Problem(
                415,
                "unsupported_type",
                f"{part.name} has the type {part.kind[:60]}: send application/json, image/*, "
                "application/x-npy, text/plain, or such files as multipart/form-data",
            )
    _check_images([(part.content, part.name) for part in parts], limits)
    return Payload("images", [part.content for part in parts], tuple(p.name for p in parts))


def from_json(content: bytes, limits: Limits) -> Payload:
    """Read {"arrays": ...}, {"images": [base64, ...]} or {"texts": [...]}."""
    value = _load_json(content)
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in FIELDS:
        raise invalid(
            'the JSON must be an object with one of the fields "arrays", "images" or "texts"'
        )
    ((kind, contents),) = value.items()
    if kind == "arrays":
        return _from_numbers(contents, limits)
    if not isinstance(contents, list) or not contents:
        raise invalid(f'"{kind}" must be a list with at least one sample')
    check_count(len(contents), limits)
    if bad := [i for i, item in enumerate(contents) if not isinstance(item, str)]:
        raise invalid(f'"{kind}"[{bad[0]}] must be a text, not {_type(contents[bad[0]])}')
    names = tuple(f'"{kind}"[{i}]' for i in range(len(contents)))
    if kind == "texts":
        return Payload("texts", contents, names)
    images = [_base64(text, name) for text, name in zip(contents, names, strict=True)]
    _check_images(list(zip(images, names, strict=True)), limits)
    return Payload("images", images, names)


def _check_images(images: Sequence[tuple[bytes, str]], limits: Limits) -> None:
    """Refuse a request before anything is decoded if one image, or all together, are too large."""
    total = 0
    for content, name in images:
        total += check_image(content, name, limits)
        if total > limits.max_request_pixels:
            raise too_large(
                f"the images have more than {limits.max_request_pixels} pixels together: send "
                "fewer in one request, or smaller ones"
            )


def check_image(content: bytes, name: str, limits: Limits) -> int:
    """Return the pixels of an image by its header; raise Problem if they are too many."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images, which are refused below
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
    except Image.DecompressionBombError as error:
        raise too_large(
            f"{name}: {error}; at most {limits.max_pixels} pixels are allowed"
        ) from None
    except Exception as error:  # Pillow raises whatever a damaged header leads to
        reason = "not an image" if "identify" in str(error) else str(error)
        known = ", ".join(FORMATS)
        raise invalid(
            f"{name} cannot be read as an image ({reason[:200]}); it may be {known}"
        ) from None
    if width * height > limits.max_pixels:
        raise too_large(
            f"{name} has {width} x {height} pixels, at most {limits.max_pixels} are allowed"
        )
    if max(width, height) > LARGEST_SIDE:
        raise too_large(f"{name} has {width} x {height} pixels; a side may have {LARGEST_SIDE}")
    return width * height


def _from_numbers(contents: Any, limits: Limits) -> Payload:
    if isinstance(contents, dict):
        if not contents:
            raise invalid('"arrays" has no input')
        arrays = {name: _numbers(value, f'"arrays".{name}') for name, value in contents.items()}
        return _checked_arrays(arrays, limits)
    return _checked_arrays(_numbers(contents, '"arrays"'), limits)


def _numbers(value: Any, name: str) -> Array:
    _check_leaves(value, name)
    try:
        array = np.array(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise invalid(f"{name} must be lists of equal length: {str(error)[:200]}") from None
    if array.dtype.kind not in "biuf":
        raise invalid(f"{name} must hold numbers only")
    return array


def _check_leaves(value: Any, name: str) -> None:
    """Refuse texts before numpy sees them: it makes every item as long as the longest one."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kinds = set(map(type, item)) if isinstance(item, list) else {type(item)}
        if not kinds <= {list, int, float, bool}:
            raise invalid(f"{name} must hold numbers only")
        if isinstance(item, list) and list in kinds:
            waiting.extend(one for one in item if type(one) is list)


def _from_npy(parts: Sequence[Part], limits: Limits) -> Payload:
    arrays = [_npy(part) for part in parts]
    if parts[0].whole:
        return _checked_arrays(arrays[0], limits)
    if len({(a.shape, a.dtype) for a in arrays}) > 1:
        raise invalid("the arrays of one request must have one shape and one type")
    return _checked_arrays(np.stack(arrays), limits)


def _npy(part: Part) -> Array:
    """Read a .npy file; its header must fit the bytes that follow, so that nothing is reserved."""
    file = io.BytesIO(part.content)
    try:
        version = np.lib.format.read_magic(file)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = reader(file)
    except Exception:  # the header is a Python literal: many kinds of errors
        raise invalid(
            f"{part.name} cannot be read as .npy: it does not begin with the header of such a file"
        ) from None
    if dtype.hasobject or dtype.kind not in "biuf":
        raise invalid(f"{part.name} must hold numbers, not {dtype}")
    if len(shape) > MOST_AXES or any(type(n) is not int or not 0 <= n < 1 << 40 for n in shape):
        raise invalid(f"{part.name} has an impossible shape in its header")
    expected = dtype.itemsize * math.prod(shape)
    found = len(part.content) - file.tell()
    if expected != found:
        raise invalid(
            f"{part.name} is truncated or damaged: its header states {expected} bytes, it has "
            f"{found}"
        )
    flat = np.frombuffer(part.content, dtype, offset=file.tell())
    try:
        array = flat.reshape(shape, order="F" if fortran else "C")
    except ValueError:  # a size of 0 beside sizes whose product is too large
        raise invalid(f"{part.name} has an impossible shape in its header") from None
    return array.astype(dtype.newbyteorder("="), copy=False)


def _checked_arrays(contents: Array | dict[str, Array], limits: Limits) -> Payload:
    for array in contents.values() if isinstance(contents, dict) else [contents]:
        if array.ndim == 0:
            raise invalid("arrays need an axis of samples: (N, ...); a number alone has none")
        if len(array) == 0:
            raise invalid("the request has no samples")
        check_count(len(array), limits)
    return Payload("arrays", contents)


def _load_json(content: bytes) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number of JSON")

    try:
        return json.loads(content, parse_constant=refuse)
    except RecursionError:
        raise invalid("the JSON is nested too deeply") from None
    except ValueError as error:  # also of bytes that are not UTF-8
        raise invalid(f"the body is not JSON: {str(error)[:200]}") from None


def _base64(text: str, name: str) -> bytes:
    _, comma, rest = text.partition(",") if text.startswith("data:") else ("", "", text)
    try:
        return base64.b64decode(rest if comma else text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{name} is not base64: {error}") from None


def _text(part: Part) -> str:
    try:
        return part.content.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"{part.name} is not UTF-8: {error}") from None


def _type(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
