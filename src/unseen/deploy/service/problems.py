"""Requests that are refused: a status, a short code for programs and a reason for people."""

from __future__ import annotations

from typing import Any

LONGEST = 500  # characters of a reason; names that a client sends may be in it


class Problem(Exception):
    """A request that gets a 4xx or 503."""

    def __init__(self, status: int, code: str, reason: str, *, retry: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.code, self.reason = status, code, reason
        self.retry = retry  # seconds after which to try again

    @property
    def body(self) -> dict[str, Any]:
        reason = self.reason if len(self.reason) <= LONGEST else f"{self.reason[:LONGEST]}…"
        return {"error": {"status": self.status, "code": self.code, "reason": reason}}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry is None else {"Retry-After": str(self.retry)}


def invalid(reason: str) -> Problem:
    """Return the problem of a request whose content cannot be read."""
    return Problem(422, "invalid_input", reason)


def too_large(reason: str) -> Problem:
    return Problem(413, "too_large", reason)


def overloaded(reason: str) -> Problem:
    return Problem(503, "overloaded", reason, retry=1)


def failure() -> Problem:
    """Return the problem of a request that met a bug of the service."""
    return Problem(500, "internal", "the service failed; its log has the reason")
