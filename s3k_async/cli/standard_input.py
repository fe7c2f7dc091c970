"""Standard input as a stream that an interrupt can end."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator
from typing import BinaryIO, cast

import anyio
from anyio import to_thread

from s3k_async.transfer import CHUNK

__all__ = ["standard_input"]

PIECE = 1024 * 1024


async def standard_input() -> AsyncGenerator[bytes, None]:
    """The bytes of standard input to its end.

    A thread that waits for a pipe or a terminal could not be cancelled, so those are waited for in the event loop.
    """
    try:
        descriptor = sys.stdin.fileno()
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        stream = cast("BinaryIO", sys.stdin.buffer)
        while piece := stream.read(CHUNK):
            yield piece
        return
    while True:
        if regular:
            piece = await to_thread.run_sync(os.read, descriptor, CHUNK)
        else:
            piece = await _when_ready(descriptor)
        if not piece:
            return
        yield piece


async def _when_ready(descriptor: int) -> bytes:
    try:
        await anyio.wait_readable(descriptor)
    except PermissionError:  # what never makes anybody wait, as /dev/null, cannot be waited for
        return await to_thread.run_sync(os.read, descriptor, PIECE)
    return os.read(descriptor, PIECE)
