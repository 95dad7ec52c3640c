"""Limits of the service. Each one refuses a request with a reason; none ends the service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from unseen.checks import check_int, check_number, check_positive


@dataclass(frozen=True)
class Limits:
    """Limits of requests and of the memory that streams take.

    Parameters
    ----------
    max_bytes
        Bytes in the body of a request; more is 413.
    max_pixels
        Pixels of an image, read from its header before it is decoded; more is 413.
    max_request_pixels
        Pixels of all images of a request together; more is 413.
    max_samples
        Samples in a request; more is 413.
    max_queue
        Samples that wait for the model; more is 503.
    max_requests
        Requests at a time, also those still being received; more is 503.
    max_domains
        Domains that are watched, of each run; one more is 503.
    receive_seconds
        Time for a client to send headers and body; longer is 408.
    answer_seconds
        Time from the complete request to its answer; longer is 503.
    """

    max_bytes: int = 16_000_000
    max_pixels: int = 25_000_000
    max_request_pixels: int = 100_000_000
    max_samples: int = 256
    max_queue: int = 2048
    max_requests: int = 512
    max_domains: int = 256
    receive_seconds: float = 10.0
    answer_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("seconds"):
                check_positive(field.name, check_number(field.name, value))
            else:
                check_int(field.name, value, 1)
