"""A live service on a free loopback port, in a thread of this process."""

from __future__ import annotations

import contextlib
import io
import json
import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import requests
from PIL import Image

from unseen.deploy import open_scorer
from unseen.deploy.service.server import ServiceSettings, serve


class Client:
    """Sends requests to a service."""

    def __init__(self, url: str, service: Any, token: str | None = None) -> None:
        self.url, self.service, self.token = url, service, token

    def send(self, method: str, path: str, **more: Any) -> requests.Response:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        headers |= more.pop("headers", {})
        return requests.request(method, self.url + path, headers=headers, timeout=60, **more)

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.send("GET", path, **more)

    def post(self, path: str, **more: Any) -> requests.Response:
        return self.send("POST", path, **more)

    def arrays(self, x: Any, domain: str = "lab", path: str = "/predict", **more: Any) -> Any:
        """Post an array as .npy; return the JSON of the answer."""
        headers = {"Content-Type": "application/x-npy", "domain": domain}
        answer = self.post(path, data=npy(x), headers=headers, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def raw(self, content: bytes, *, wait: float = 20.0) -> bytes:
        """Send bytes as they are; return what comes back until the service closes."""
        parts = urlsplit(self.url)
        found = b""
        with socket.create_connection((parts.hostname, parts.port), timeout=wait) as connection:
            connection.sendall(content)
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while chunk := connection.recv(65536):
                    found += chunk
        return found

    def alive(self) -> bool:
        return self.get("/health").json() == {"status": "ok"}


@contextlib.contextmanager
def running(paths: Sequence[Path], **settings: Any) -> Iterator[Client]:
    """Serve exported models until the end of the block."""
    ready: queue.Queue[Any] = queue.Queue()
    chosen = replace(ServiceSettings(port=0, reload_seconds=60.0), **settings)

    def work() -> None:
        try:
            serve(
                paths,
                lambda path: open_scorer(path, threads=1),
                chosen,
                lambda url, service: ready.put((url, service)),
            )
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    started = ready.get(timeout=120)
    if isinstance(started, BaseException):
        raise started
    try:
        yield Client(*started, chosen.token)
    finally:
        started[1].stop()
        thread.join(60)
        assert not thread.is_alive()


def npy(array: Any) -> bytes:
    """Return the content of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(width: int = 12, height: int = 12, kind: str = "PNG") -> bytes:
    """Return the content of an image file."""
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def reason_of(answer: requests.Response) -> str:
    """Return the reason of a refused request; check that nothing of the inside leaks."""
    error = answer.json()["error"]
    assert error["status"] == answer.status_code and error["code"] and error["reason"]
    assert "Traceback" not in answer.text and "BytesIO" not in answer.text
    return str(error["reason"])


def json_body(value: Any) -> dict[str, Any]:
    """Return the arguments of a JSON request whose text may be no JSON."""
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    return {"data": text, "headers": {"Content-Type": "application/json"}}
