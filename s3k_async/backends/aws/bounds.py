"""Bounds on the time and size of a response, independent of the server.

The whole head of an answer has the response timeout, its body the same again and more for each byte
(`LEAST_RATE`), as the head has for each byte of a large request, and a body at most the bytes that
the request can ask for. Between two signs of life is the response timeout at most. The time of the
call bounds all of it, connecting and sending included.

`connection_pool` has these bounds, and `bounded_response` for what goes through aiohttp: requests
that botocore signs, and those through a proxy.
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
