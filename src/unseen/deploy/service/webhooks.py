"""Post a message to URLs when a domain begins or ends to raise alarms.

A thread of its own sends them, with retries; the service never waits for it.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
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
        self.urls, self.count, self.waits = tuple(urls), count, tuple(waits)
        self._messages: queue.Queue[tuple[str, bytes] | None] = queue.Queue(MOST)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="unseen-webhooks", daemon=True)
        if urls:
            self._thread.start()

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; it is dropped if a thousand are waiting."""
        content = json.dumps(message).encode()
        for url in self.urls:
            try:
                self._messages.put_nowait((url, content))
            except queue.Full:
                self.count("dropped")

    def close(self, seconds: float = 5.0) -> None:
        """Try what is waiting once more, then stop."""
        if self.urls:
            self._stop.set()
            self._messages.put(None)
            self._thread.join(seconds)

    def _run(self) -> None:
        while (message := self._messages.get()) is not None:
            self.count("sent" if self._deliver(*message) else "failed")

    def _deliver(self, url: str, content: bytes) -> bool:
        host = urlsplit(url).hostname  # the rest of a URL may be a secret
        for wait in (*self.waits, None):
            try:
                answer = requests.post(
                    url,
                    data=content,
                    headers={"Content-Type": "application/json"},
                    timeout=TIMEOUT,
                    allow_redirects=False,
                )
                if answer.status_code < 300:
                    return True
                problem = f"status {answer.status_code}"
            except requests.RequestException as error:
                problem = type(error).__name__
            _log.warning("the webhook at %s failed: %s", host, problem)
            if wait is None or self._stop.is_set() or self._stop.wait(wait):
                return False
        return False
