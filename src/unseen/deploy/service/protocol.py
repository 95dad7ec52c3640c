"""HTTP connections that do not wait for ever, and whose problems are JSON too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from unseen.deploy.service.problems import Problem


def protocol_with(receive_seconds: float) -> type[H11Protocol]:
    """Return a protocol whose clients have that time to send the head of a request."""

    class Protocol(H11Protocol):
        _slow: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            if self._slow is None and self.conn.their_state is h11.IDLE:
                self._wait_for_head()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            self._refuse(Problem(400, "invalid_http", "this is not a request of HTTP/1.1"))

        def on_response_complete(self) -> None:
            self._stop_waiting()
            super().on_response_complete()

        def _wait_for_head(self) -> None:
            self._slow = self.loop.call_later(receive_seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None

        def _give_up(self) -> None:
            self._slow = None
            reason = f"the request had no complete head after {receive_seconds:g} s"
            self._refuse(Problem(408, "receive_timeout", reason))

        def _refuse(self, problem: Problem) -> None:
            if self.transport.is_closing():
                return
            body = json.dumps(problem.body).encode()
            head = (
                f"HTTP/1.1 {problem.status} {problem.code}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    return Protocol
