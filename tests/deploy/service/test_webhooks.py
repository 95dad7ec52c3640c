"""Webhooks: one that is down delays no other."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

import pytest

from unseen.deploy.service.webhooks import Webhooks


@pytest.fixture
def receiver():
    got: queue.Queue[bytes] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            got.put(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()


def test_webhook_that_never_answers_delays_no_other(receiver):
    url, got = receiver
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        dead = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        outcomes: list[str] = []
        webhooks = Webhooks([dead, url, url], outcomes.append, waits=())
        for number in range(5):
            webhooks.send({"number": number})
        assert [got.get(timeout=5) for _ in range(5)] == [
            b'{"number": %d}' % number for number in range(5)
        ]
        webhooks.close(0.1)
    assert outcomes == ["sent"] * 5 and got.empty()  # a URL given twice gets a message once


def test_answer_that_never_ends_is_not_read():
    class Endless(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while not done.wait(0.01):
                    self.wfile.write(b"x" * 1000)

        def log_message(self, *args):
            pass

    done = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    outcomes: queue.Queue[str] = queue.Queue()
    webhooks = Webhooks([f"http://127.0.0.1:{server.server_port}/"], outcomes.put, waits=())
    try:
        for number in range(3):
            webhooks.send({"number": number})
        assert [outcomes.get(timeout=5) for _ in range(3)] == ["sent"] * 3
    finally:
        done.set()
        webhooks.close(0.1)
        server.shutdown()
        server.server_close()
