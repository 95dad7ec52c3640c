"""Damaged copies of valid files, drawn by hypothesis."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# `make torture` sets UNSEEN_EXAMPLES to try more.
EXAMPLES = int(os.environ.get("UNSEEN_EXAMPLES", "15"))
quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="UNSEEN_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)


def _cut(content: bytes, at: int, more: bytes) -> bytes:
    return content[:at]


def _overwrite(content: bytes, at: int, more: bytes) -> bytes:
    return content[:at] + more + content[at + len(more) :]


def _insert(content: bytes, at: int, more: bytes) -> bytes:
    return content[:at] + more + content[at:]


def _delete(content: bytes, at: int, more: bytes) -> bytes:
    return content[:at] + content[at + max(1, len(more)) :]


def _repeat(content: bytes, at: int, more: bytes) -> bytes:
    return content + content[at:]


EDITS: tuple[Callable[[bytes, int, bytes], bytes], ...] = (
    _cut,
    _overwrite,
    _insert,
    _delete,
    _repeat,
)
HOSTILE = [b"\xff" * 4, b"\x00" * 8, b"-1", b"NaN", b"1e999", b"9" * 30, b"\n", b"\xf0\x9f"]


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Return the content after one to four edits, most of them near its start."""
    for _ in range(draw(st.integers(1, 4))):
        near = min(len(content), 200)
        at = draw(st.one_of(st.integers(0, near), st.integers(0, len(content))))
        more = draw(st.one_of(st.sampled_from(HOSTILE), st.binary(min_size=1, max_size=6)))
        content = draw(st.sampled_from(EDITS))(content, at, more)
    return content


def any_bytes(content: bytes) -> st.SearchStrategy[bytes]:
    """Return arbitrary bytes, or a damaged copy of a valid file."""
    return st.one_of(damaged(content), damaged(content), st.binary(max_size=300))
