"""Receive the body of a request within the limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from email.message import Message

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from unseen.deploy.service.limits import Limits
from unseen.deploy.service.problems import Problem, invalid, too_large


@dataclass(frozen=True)
class Part:
    """One file of a request, or its whole body."""

    content: bytes
    kind: str  # media type, in lower case and without parameters
    name: str  # for messages
    whole: bool = False  # the body of a request: an array in it holds all samples, (N, ...)


async def receive(request: Request, limits: Limits) -> bytes:
    """Return the body of a request."""
    if (encoding := request.headers.get("content-encoding", "identity")).lower() != "identity":
        raise Problem(
            415,
            "unsupported_encoding",
            f"the body has the Content-Encoding {encoding[:60]}: send it without",
        )
    _check_length(request.headers.get("content-length"), limits)
    try:
        return await asyncio.wait_for(_collect(request, limits), limits.receive_seconds)
    except asyncio.TimeoutError:
        raise Problem(
            408,
            "receive_timeout",
            f"the request was not complete after {limits.receive_seconds:g} s: send it faster, or "
            "raise --receive-seconds",
        ) from None
    except ClientDisconnect:
        raise Problem(400, "disconnected", "the client closed the connection") from None


def media_type(request: Request) -> str:
    """Return the media type of a request, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def parts_of(request: Request, body: bytes, limits: Limits) -> list[Part]:
    """Return the files of a multipart request."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(
        request.headers, stream(), max_files=limits.max_samples, max_fields=100
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise too_large(_too_many(f"more than {limits.max_samples}", limits)) from None
        raise invalid(f"the multipart body cannot be read: {error.message}") from None
    except (ValueError, LookupError, RecursionError) as error:
        raise invalid(f"the multipart body cannot be read: {error}") from None
    parts = []
    for field, value in form.multi_items():
        if not isinstance(value, UploadFile):
            raise invalid(f"the form field {field[:50]!r} is not a file: send files only")
        kind = (value.content_type or "").partition(";")[0].strip().lower()
        parts.append(Part(await value.read(), kind, (value.filename or field)[:100]))
    await form.close()
    if not _is_complete(request, body):
        raise invalid("the multipart body is cut off: it has no end after its last part")
    if not parts:
        raise invalid("the multipart body has no file: add one part for each sample")
    return parts


def _is_complete(request: Request, body: bytes) -> bool:
    """Return whether a form has its last boundary; the parser drops a part that is cut off."""
    head = Message()
    head["content-type"] = request.headers["content-type"]
    return f"--{head.get_boundary('')}--".encode("latin-1", "replace") in body


def check_count(n: int, limits: Limits) -> int:
    """Return the number of samples if it is within the limit."""
    if n > limits.max_samples:
        raise too_large(_too_many(str(n), limits))
    return n


def _too_many(count: str, limits: Limits) -> str:
    return f"the request has {count} samples, at most {limits.max_samples} are allowed: split it"


def _check_length(stated: str | None, limits: Limits) -> None:
    if stated is not None and stated.isdigit() and int(stated) > limits.max_bytes:
        raise too_large(_too_long(stated, limits))


async def _collect(request: Request, limits: Limits) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limits.max_bytes:
            raise too_large(_too_long(f"more than {limits.max_bytes}", limits))
        chunks.append(chunk)
    return b"".join(chunks)


def _too_long(size: str, limits: Limits) -> str:
    return (
        f"the body has {size} bytes, at most {limits.max_bytes} are allowed: send fewer samples "
        "at a time"
    )
