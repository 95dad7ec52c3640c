"""What every request passes: the limit of requests, the token, the metrics, safe headers."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unseen.deploy.service.limits import Limits
from unseen.deploy.service.metrics import Metrics
from unseen.deploy.service.problems import Problem, failure, overloaded

# The page itself holds no data; what it shows is fetched with the token.
PUBLIC = ("/", "/page.css", "/page.js", "/health", "/ready")
ROUTES = (
    *PUBLIC, "/predict", "/score", "/reload", "/runs", "/state", "/metrics", "/openapi.json",
)  # fmt: skip
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_log = logging.getLogger(__name__)


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, token: str | None) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self._token = None if token is None else token.encode()
        self.running = self.cancelled = 0  # requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        start, path = time.perf_counter(), scope["path"]
        route = path if path in ROUTES else "/domains" if path.startswith("/domains/") else "other"
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        self.running += 1
        try:
            self._check(scope, path)
            await self.app(scope, receive, answer)
        except Problem as problem:
            await self.refuse(problem, answer)
        except asyncio.CancelledError:  # of the server, which has waited for --stop-seconds
            self.cancelled += 1
            if not status:
                reason = "the service stops and has no time left for this request: try again"
                await self.refuse(Problem(503, "stopping", reason, retry=5), answer)
        except Exception:
            _log.exception("a request to %s failed", path)
            if not status:
                await self.refuse(failure(), answer)
        finally:
            self.running -= 1
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)

    async def refuse(self, problem: Problem, send: Send) -> None:
        """Answer with the reason."""
        self.metrics.refused.labels(problem.code).inc()
        await send_json(problem, send)

    def _check(self, scope: Scope, path: str) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"sec-fetch-site") == b"cross-site" and scope["method"] != "GET":
            raise Problem(403, "cross_site", "pages of other sites may not use this service")
        if self._token is not None and path not in PUBLIC:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            same = hmac.compare_digest(given.strip(), self._token)
            if kind.lower() != b"bearer" or not same:
                raise Problem(
                    401,
                    "unauthorized",
                    "send the header Authorization: Bearer TOKEN with the token of the service",
                )
        if self.running > self.limits.max_requests and path not in PUBLIC:
            raise overloaded(
                f"{self.limits.max_requests} requests are being answered, no more may: try again"
            )


async def send_json(problem: Problem, send: Send) -> None:
    """Send the answer of a problem."""
    body = json.dumps(problem.body).encode()
    headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
    headers.append((b"content-length", str(len(body)).encode()))
    headers += [(k.lower().encode(), v.encode()) for k, v in problem.headers.items()]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status == 408:
        headers.append((b"connection", b"close"))
    start: dict[str, Any] = {"type": "http.response.start", "status": problem.status}
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": body})
