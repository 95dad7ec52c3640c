"""Sixty malformed requests: each gets a 4xx with a reason, and the service lives on."""

from __future__ import annotations

import base64
import gzip
import io
import struct
import zlib

import numpy as np
import pytest
from live_service import json_body, npy, png, reason_of, running

from unseen.deploy.service.limits import Limits

TOKEN = "s3cret-token"
GOOD = np.zeros((2, 2, 8, 8), np.float32)
LIMITS = Limits(
    max_bytes=300_000,
    max_pixels=100_000,
    max_request_pixels=150_000,
    max_samples=16,
    receive_seconds=0.5,
    max_domains=4,
)
NPY = {"Content-Type": "application/x-npy"}
IMAGES = {"run": "own"}


@pytest.fixture(scope="module")
def client(light_run, own_export, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / "light.onnx", folder / "own.onnx"]
    for path, made in zip(paths, (light_run, own_export), strict=True):
        path.write_bytes(made.exported.read_bytes())
    with running(paths, token=TOKEN, limits=LIMITS) as client:
        yield client


def with_nan():
    x = GOOD.copy()
    x[1, 0, 0, 0] = np.nan
    return x


def npy_with_header(text: str, data: bytes = b"") -> bytes:
    head = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def npy_of_shape(shape: str, data: bytes = b"") -> bytes:
    return npy_with_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}", data)


def bomb(width: int, height: int) -> bytes:
    """Return a small PNG that states many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(100_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def arrays(content, **more):
    return {"data": content, "headers": {**NPY, **more.pop("headers", {})}, **more}


def image(content, kind="image/png"):
    return {"data": content, "headers": {"Content-Type": kind}, "params": IMAGES}


def upload(*parts, run="own"):
    return {"files": [("files", part) for part in parts], "params": {"run": run}}


def own_arrays(x):
    return {"data": npy(x), "headers": NPY, "params": IMAGES}


def typed(content, kind):
    return {"data": content, "headers": {"Content-Type": kind}}


def texts(value):
    return json_body({"texts": value})


def images(value):
    return {**json_body({"images": value}), "params": IMAGES}


DEEP = "[" * 100_000
JPEG = png(64, 64, "JPEG")
POSTS = {
    # tokens
    "no token": (401, {**arrays(npy(GOOD), headers={"Authorization": ""})}),
    "wrong token": (401, {**arrays(npy(GOOD), headers={"Authorization": "Bearer wrong"})}),
    "begin of the token": (
        401,
        {**arrays(npy(GOOD), headers={"Authorization": f"Bearer {TOKEN[:-1]}"})},
    ),
    "token of another kind": (
        401,
        {**arrays(npy(GOOD), headers={"Authorization": f"Basic {TOKEN}"})},
    ),
    "token that is not ASCII": (
        401,
        {**arrays(npy(GOOD), headers={"Authorization": "Bearer \xe9".encode("latin-1")})},
    ),
    # bodies
    "empty body": (422, typed(b"", "application/json")),
    "empty array file": (422, arrays(b"")),
    "not JSON": (422, json_body("hello")),
    "JSON cut off": (422, json_body('{"arrays": [[1, 2')),
    "JSON with NaN": (422, json_body('{"arrays": [[NaN]]}')),
    "JSON that is not UTF-8": (422, json_body(b'{"texts": ["\xff\xfe"]}')),
    "JSON nested too deeply": (422, json_body(DEEP)),
    "long text among numbers": (422, json_body({"arrays": ["x" * 100_000, *"a" * 30_000]})),
    "text among numbers of a list": (422, json_body({"arrays": [["x" * 90_000, *"a" * 30_000]]})),
    "thousands of inputs": (422, json_body({"arrays": {str(i): [[1]] for i in range(9_000)}})),
    "compressed body": (
        415,
        arrays(gzip.compress(npy(GOOD)), headers={"Content-Encoding": "gzip"}),
    ),
    "JSON of a number": (422, json_body(3)),
    "JSON of a list": (422, json_body([1, 2])),
    "JSON without a field": (422, json_body({})),
    "JSON with an unknown field": (422, json_body({"inputs": [[1]]})),
    "JSON with two fields": (422, json_body({"arrays": [[1]], "texts": ["a"]})),
    "unknown type": (415, typed(b"<a/>", "application/xml")),
    "archive": (415, typed(b"PK\x03\x04", "application/zip")),
    "no type": (422, {"data": b"whatever", "headers": {"Content-Type": ""}}),
    "too many bytes": (413, arrays(npy(np.zeros(100_000)))),
    "too many bytes in chunks": (413, arrays(iter([b"x" * 50_000] * 8))),
    # arrays
    "arrays null": (422, json_body({"arrays": None})),
    "arrays of text": (422, json_body({"arrays": [["a", "b"]]})),
    "arrays of unequal length": (422, json_body({"arrays": [[1, 2], [3]]})),
    "a number alone": (422, json_body({"arrays": 5})),
    "no sample": (422, json_body({"arrays": []})),
    "numbers too large": (422, json_body({"arrays": [[10**400]]})),
    "wrong shape": (422, json_body({"arrays": [[1.0, 2.0]]})),
    "wrong channels": (422, arrays(npy(np.zeros((2, 3, 8, 8), np.float32)))),
    "no axis of samples": (422, arrays(npy(GOOD[0]))),
    "too many samples": (413, arrays(npy(np.zeros((17, 2, 8, 8), np.float32)))),
    "NaN": (422, arrays(npy(with_nan()))),
    "infinity": (422, arrays(npy(GOOD + np.inf))),
    "complex numbers": (422, arrays(npy(GOOD.astype(np.complex64)))),
    "array of texts": (422, arrays(npy(np.array(["a", "b"])))),
    "array of objects": (422, arrays(pickled())),
    "array cut off": (422, arrays(npy(GOOD)[:-10])),
    "array with a tail": (422, arrays(npy(GOOD) + b"more")),
    "array that states a terabyte": (
        422,
        arrays(npy_with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 40,)}")),
    ),
    "array that states a large shape": (
        422,
        arrays(
            npy_with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,)}")
        ),
    ),
    "array that states a negative shape": (422, arrays(npy_of_shape("(-2, -2)", bytes(16)))),
    "array that states a shape of truths": (422, arrays(npy_of_shape("(True,)", bytes(4)))),
    "array that states no rows of many": (422, arrays(npy_of_shape(f"(0, {2**70})"))),
    "array that states no samples of too many numbers": (
        422,
        arrays(npy_of_shape(f"(2, {10**12 - 1}, {10**12 - 1}, 0)")),
    ),
    "array that states many axes": (422, arrays(npy_of_shape("(1,) * 40".replace(" ", "")))),
    "array with an expression in its header": (422, arrays(npy_of_shape("(1 << 3,)", bytes(32)))),
    "array with code in its header": (422, arrays(npy_with_header("__import__('os').getcwd()"))),
    "array of a future version": (422, arrays(b"\x93NUMPY\x09\x00" + npy(GOOD)[8:])),
    "unknown input": (422, json_body({"arrays": {"nothing": [[1.0]]}})),
    "inputs of unequal length": (422, json_body({"arrays": {"a": [[1.0]], "b": [[1.0], [2.0]]}})),
    # images
    "not an image": (422, image(b"not an image at all")),
    "image cut off": (422, image(JPEG[: len(JPEG) // 2], "image/jpeg")),
    "PNG cut off": (422, image(png(64, 64)[:400])),
    "image without its end": (422, image(png()[:20])),
    "decompression bomb": (413, image(bomb(40_000, 40_000))),
    "many pixels": (413, image(bomb(1000, 1000))),
    "many pixels in a strip": (413, image(bomb(1, 70_000))),
    "many pixels together": (413, upload(*[("a.png", png(100, 100), "image/png")] * 16)),
    "whole numbers above 255": (422, own_arrays(np.full((1, 3, 12, 12), 300))),
    "whole numbers below 0": (422, own_arrays(np.full((1, 3, 12, 12), -1))),
    "whole numbers 0 and 1": (422, own_arrays(np.eye(12, dtype=int)[None, None].repeat(3, 1))),
    "floats up to 255": (422, own_arrays(np.full((1, 3, 12, 12), 200.0))),
    "vector image": (422, image(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml")),
    "images not base64": (422, images(["%%%"])),
    "images not a list": (422, images("abc")),
    "images of numbers": (422, images([1, 2])),
    "image in base64 cut off": (422, images([b64(png()[:60])])),
    "images to a run of arrays": (422, json_body({"images": [b64(png())]})),
    # texts
    "texts to a run of arrays": (422, texts(["a"])),
    "path as a text": (422, {**texts(["/etc/passwd"]), "params": IMAGES}),
    "text that is not UTF-8": (422, typed(b"\xff\xfe\xff", "text/plain")),
    # forms
    "form without files": (
        422,
        typed(b"--x--\r\n", "multipart/form-data; boundary=x"),
    ),
    "form without a boundary": (422, typed(b"--x\r\n", "multipart/form-data")),
    "form that is no form": (422, typed(b"hello", "multipart/form-data; boundary=x")),
    "form that is cut off": (
        422,
        typed(
            b'--x\r\ncontent-disposition: form-data; name="a"; filename="a.png"\r\n\r\n'
            + png()
            + b'\r\n--x\r\ncontent-disposition: form-data; name="a"; filename="b.png"\r\n\r\n',
            "multipart/form-data; boundary=x",
        ),
    ),
    "form with a field": (
        422,
        typed(
            b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
    ),
    "too many files": (413, upload(*[("a.png", png(), "image/png")] * 17)),
    "image and array": (
        422,
        upload(("a.png", png(), "image/png"), ("b.npy", npy(GOOD[0]), "application/x-npy")),
    ),
    "arrays of two shapes": (
        422,
        upload(("a.npy", npy(GOOD[0])), ("b.npy", npy(GOOD[0, 0])), run="light"),
    ),
    # addresses
    "unknown run": (404, {**arrays(npy(GOOD)), "params": {"run": "other"}}),
    "long name of a domain": (422, arrays(npy(GOOD), headers={"domain": "x" * 500})),
    "empty name of a domain": (422, {**arrays(npy(GOOD)), "params": {"domain": ""}}),
    "page of another site": (403, arrays(npy(GOOD), headers={"Sec-Fetch-Site": "cross-site"})),
}
RAW = {
    "not HTTP": (b"400", b"\x16\x03\x01\x02\x00\x01\x00 hello\r\n\r\n"),
    "bad length": (b"400", b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n"),
    "huge header": (b"400", b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000),
    "slow head": (b"408", b"POST /predict HTTP/1.1\r\nhost: a\r\n"),
    "slow body": (
        b"408",
        b"POST /predict HTTP/1.1\r\nhost: a\r\nauthorization: Bearer "
        + TOKEN.encode()
        + b"\r\ncontent-length: 100\r\n\r\nhalf",
    ),
}
OTHERS = [("GET", "/nothing", 404), ("GET", "/predict", 405), ("PUT", "/state", 405)]


@pytest.mark.parametrize("name", POSTS)
def test_malformed_request_is_refused(client, name):
    status, request = POSTS[name]
    answer = client.post("/predict", **request)
    assert answer.status_code == status, answer.text
    assert len(reason_of(answer)) < 600
    assert client.alive()


@pytest.mark.parametrize("name", RAW)
def test_malformed_connection_is_refused(client, name):
    status, content = RAW[name]
    answer = client.raw(content)
    assert answer.startswith(b"HTTP/1.1 " + status), answer
    assert b'"reason"' in answer and client.alive()


@pytest.mark.parametrize(("method", "path", "status"), OTHERS)
def test_wrong_address_is_refused(client, method, path, status):
    answer = client.send(method, path)
    assert answer.status_code == status and "/openapi.json lists" in reason_of(answer)


def test_service_works_after_all_of_them(client):
    assert len(POSTS) + len(RAW) + len(OTHERS) >= 60
    found = client.arrays(GOOD, domain="after")
    assert [row["prediction"] for row in found["predictions"]] == ["0", "0"] or found["n"] == 2
    uploaded = client.post("/predict", **upload(("a.png", png(), "image/png"))).json()
    assert uploaded["run"] == "own" and uploaded["n"] == 1
    assert list(client.service.runs["light"].current.streams.by_domain) == ["after"]
