"""Standard input and pipes as interruptible streams."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import BinaryIO, cast

import anyio

from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk.transfer import CHUNK
from s3k_async.errors import InvalidArgumentError

__all__ = ["pieces_of", "standard_input"]

PIECE = 1024 * 1024


async def standard_input() -> AsyncGenerator[bytes, None]:
    """The bytes of standard input. Raises InvalidArgumentError if it is closed."""
    if sys.stdin is None:
        raise InvalidArgumentError("standard input is closed")
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        stream = cast("BinaryIO", sys.stdin.buffer)
        while piece := stream.read(CHUNK):
            yield piece
        return
    async for piece in pieces_of(descriptor):
        yield piece


async def pieces_of(descriptor: int) -> AsyncGenerator[bytes, None]:
    """The bytes of an open file, pipe or terminal.

    A thread that waits for a pipe or a terminal cannot be cancelled, so the event loop waits for
    these.
    """
    regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if regular:
            piece = await in_thread(os.read, descriptor, CHUNK)
        else:
            piece = await _when_ready(descriptor)
        if not piece:
            return
        yield piece


async def _when_ready(descriptor: int) -> bytes:
    if not os.get_blocking(descriptor):
        # A pipe without a writer when it was opened never becomes ready.
        with suppress(BlockingIOError):
            return os.read(descriptor, PIECE)
    try:
        await anyio.wait_readable(descriptor)
    except PermissionError:  # files that never block, such as /dev/null, cannot be waited for
        return await in_thread(os.read, descriptor, PIECE)
    return os.read(descriptor, PIECE)
