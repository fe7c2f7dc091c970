"""Entity tags of blobs in stores that have none of their own: MD5, as S3 has them."""

from __future__ import annotations

import hashlib
from typing import Final

from anyio.to_thread import run_sync

__all__ = ["entity_tag"]

_FEW: Final = 256 << 10
"""Bytes that are hashed on the event loop."""


async def entity_tag(data: bytes) -> str:
    """The MD5 digest of the bytes, in hexadecimal digits; of long ones in a worker thread."""

    def digest() -> str:
        return hashlib.md5(data, usedforsecurity=False).hexdigest()

    return digest() if len(data) <= _FEW else await run_sync(digest)
