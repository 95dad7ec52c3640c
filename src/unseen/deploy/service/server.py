"""Start the service, stop it after what it has, reload it on SIGHUP."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from unseen.checks import check_int, check_number
from unseen.deploy.service.app import Service
from unseen.deploy.service.limits import Limits
from unseen.deploy.service.metrics import Metrics
from unseen.deploy.service.protocol import protocol_with
from unseen.deploy.service.runs import Open, ServedRun, Watcher, names_of
from unseen.deploy.service.settings import Batching, Watching
from unseen.deploy.service.webhooks import Webhooks
from unseen.errors import UnseenError
from unseen.files import locked

LOOPBACK = "127.0.0.1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceSettings:
    """Everything that can be chosen about a service."""

    host: str = LOOPBACK
    port: int = 8000
    token: str | None = None
    state: Path | None = None
    webhooks: tuple[str, ...] = ()
    recent: int = 24
    reload_seconds: float = 2.0
    stop_seconds: float = 30.0
    limits: Limits = field(default_factory=Limits)
    watching: Watching = field(default_factory=Watching)
    batching: Batching = field(default_factory=Batching)


def serve(
    paths: Sequence[Path],
    open_: Open,
    settings: ServiceSettings,
    started: Callable[[str, Service], None] = lambda url, service: None,
) -> int:
    """Serve runs until SIGTERM or Ctrl-C; return the number of answered requests.

    Args:
        open_: opens the scorer of a run.
        started: is called with the URL when requests are accepted.
    """
    check_int("recent", settings.recent, 0)
    check_number("reload_seconds", settings.reload_seconds, 0.01)
    check_number("stop_seconds", settings.stop_seconds, 0)
    # Without the line feed that a file of secrets ends with; a header cannot carry it.
    token = None if settings.token is None else settings.token.strip()
    if token == "":
        raise UnseenError("UNSEEN_TOKEN is empty: set a token, or unset it")
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(settings.host, settings.port))
        if settings.state is not None:
            settings.state.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(settings.state))
        metrics = Metrics()
        webhooks = Webhooks(
            settings.webhooks, lambda outcome: metrics.webhooks.labels(outcome).inc()
        )
        stack.callback(webhooks.close)
        _keep_modules()
        stack.callback(gc.unfreeze)
        runs: dict[str, ServedRun] = {}
        for name, path in zip(names_of(paths), paths, strict=True):
            runs[name] = ServedRun(
                name,
                path,
                open_,
                settings.state,
                limits=settings.limits,
                watching=settings.watching,
                batching=settings.batching,
                metrics=metrics,
                notify=webhooks.send,
                recent=settings.recent,
            )
            stack.callback(runs[name].close)
        watcher = Watcher(list(runs.values()), settings.reload_seconds)
        stack.callback(watcher.close)
        service = Service(runs, settings.limits, metrics, token)
        server = _server(service, settings, watcher.reload_now)
        port = listening.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        server.when_ready = lambda: started(f"http://{host}:{port}", service)
        server.run(sockets=[listening])
        if service.app.cancelled:
            _log.warning(
                "%d requests were not finished within --stop-seconds and got 503",
                service.app.cancelled,
            )
        return server.server_state.total_requests


class _Server(uvicorn.Server):
    """A server whose signals end it without an error; SIGHUP reloads."""

    when_ready: Callable[[], None] = staticmethod(lambda: None)
    on_reload: Callable[[], None] = staticmethod(lambda: None)
    on_stop: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.when_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Any] = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = lambda *_: self.on_reload()
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        if self.should_exit and number == signal.SIGINT:  # Ctrl-C again: do not wait
            self.force_exit = True
        self.on_stop()


def _server(service: Service, settings: ServiceSettings, reload: Callable[[], None]) -> _Server:
    config = uvicorn.Config(
        service.app,
        http=protocol_with(settings.limits.receive_seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.stop_seconds),
    )
    server = _Server(config)
    server.on_reload = reload

    def stop() -> None:
        service.stopping, server.should_exit = True, True

    service.stop = server.on_stop = stop
    return server


def _keep_modules() -> None:
    """Take what is imported out of garbage collections, which stop requests for 50 ms else.

    Before runs are loaded: they are garbage after a reload.
    """
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """Open the port before models are loaded, which takes longer."""
    check_int("port", port, 0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY if the protocol is named. Without it, the body of an answer waits for
    # the acknowledgement of its head, which clients delay by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UnseenError(
                f"cannot listen on {host}, port {port}: {getattr(error, 'strerror', None) or error}"
                "; choose another --host or --port"
            ) from error
        yield listening
    finally:
        listening.close()
