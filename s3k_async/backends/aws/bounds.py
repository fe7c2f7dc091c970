"""Bounds on the time and size of a response, independent of the server.

The head of a response must be complete within the response timeout, plus a time for each byte of a
large request; the body within the same timeout, plus a time for each byte (`LEAST_RATE`). A body
has at most the bytes that the request can ask for. The response timeout also bounds each pause
between two reads. The deadline of the call covers everything, including connecting and sending.

`connection_pool` applies these bounds, and `bounded_response` applies them to requests through
aiohttp: those that botocore signs, and those through a proxy.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import anyio

from s3k_async._core.retry import seconds_left

__all__ = ["MOST", "in_time"]

MOST: Final = 128 * 1024 * 1024
"""Default limit of an answer in bytes: a BatchGetItem has 16 MB of items, each byte of which may
take six in JSON."""


def in_time() -> AbstractContextManager[object]:
    """Bounds the body by the time of the call. Raises TimeoutError."""
    return anyio.fail_after(seconds_left())
