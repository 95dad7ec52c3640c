"""Post a message to URLs when a domain begins or ends to raise alarms.

A thread for each URL sends them, with retries; the service never waits for it.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import requests

from unseen.errors import UnseenError

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds between tries
TIMEOUT = 10.0
MOST = 1000  # messages that wait
_log = logging.getLogger(__name__)


class Webhooks:
    """Sends messages to every URL.

    Args:
        count: is called with "sent", "failed" or "dropped" for each.
        waits: seconds between tries; their number is that of the retries.
    """

    def __init__(
        self,
        urls: Sequence[str],
        count: Callable[[str], None] = lambda outcome: None,
        waits: Sequence[float] = WAITS,
    ) -> None:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UnseenError(f"--webhook must be an http or https URL, not {url}")
        self.count, self.waits = count, tuple(waits)
        self._stop = threading.Event()
        self._targets = [_Target(url, self._deliver) for url in dict.fromkeys(urls)]

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message for every URL; it is dropped where a thousand are waiting."""
        content = json.dumps(message).encode()
        for target in self._targets:
            if not target.put(content):
                self.count("dropped")

    def close(self, seconds: float = 5.0) -> None:
        """Try what is waiting once more, then stop."""
        self._stop.set()
        end = time.monotonic() + seconds
        for target in self._targets:
            target.put(None)
        for target in self._targets:
            target.thread.join(max(0.0, end - time.monotonic()))

    def _deliver(self, url: str, content: bytes) -> None:
        self.count("sent" if self._post(url, content) else "failed")

    def _post(self, url: str, content: bytes) -> bool:
        host = urlsplit(url).hostname  # the rest of a URL may be a secret
        for wait in (*self.waits, None):
            try:
                with requests.post(
                    url,
                    data=content,
                    headers={"Content-Type": "application/json"},
                    timeout=TIMEOUT,
                    allow_redirects=False,
                    stream=True,  # the body is not read: it may never end
                ) as answer:
                    if answer.status_code < 300:
                        return True
                    problem = f"status {answer.status_code}"
            except requests.RequestException as error:
                problem = type(error).__name__
            _log.warning("the webhook at %s failed: %s", host, problem)
            if wait is None or self._stop.is_set() or self._stop.wait(wait):
                return False
        return False


class _Target:
    """A URL with its own queue and thread, so that one that is down does not delay the others."""

    def __init__(self, url: str, deliver: Callable[[str, bytes], None]) -> None:
        self.url, self._deliver_to = url, deliver
        self._messages: queue.Queue[bytes | None] = queue.Queue(MOST)
        self.thread = threading.Thread(target=self._run, name="unseen-webhook", daemon=True)
        self.thread.start()

    def put(self, content: bytes | None) -> bool:
        """Queue a message, or the end; return whether there was room."""
        try:
            self._messages.put_nowait(content)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        while (content := self._messages.get()) is not None:
            self._deliver_to(self.url, content)
