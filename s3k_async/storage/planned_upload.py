"""Planned uploads: small uploads whose entity tag is computed in advance, so that they can be
logged while they are being stored.

The log records the entity tag of a file's data. In S3 the tag of an object that one request stored
is the MD5 digest of its bytes, unless it is encrypted with KMS or a customer key. Source: Amazon S3
API Reference, data type Object, ETag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from s3k_async.backends.ports.blobs import Buffer
from s3k_async.errors import BlobChangedError
from s3k_async.model import Content

__all__ = ["PLANNED_BYTES", "DigestTags", "PlannedUpload"]

PLANNED_BYTES: Final = 64 * 1024
"""Maximum bytes of a planned upload. For more, the time of the upload outweighs the gain, and the
digest takes processor time."""


class DigestTags:
    """Whether the entity tags of a store are MD5 digests of the bytes: its first answer decides,
    until a later one differs."""

    def __init__(self) -> None:
        self._found: bool | None = None

    def of(self, data: Buffer) -> str | None:
        """The tag that the bytes will have; None if it is not known."""
        return _digest(data) if self._found and len(data) <= PLANNED_BYTES else None

    def learn(self, data: Buffer, etag: str) -> None:
        """Note the tag of bytes that were stored by one request."""
        if self._found is None and len(data) <= PLANNED_BYTES:
            self._found = etag == _digest(data)

    def distrust(self) -> None:
        """Note that a tag differed from the digest."""
        self._found = False


class PlannedUpload:
    """Bytes to be stored, and their content as it is known in advance."""

    def __init__(
        self, content: Content, put: Callable[[], Awaitable[Content]], tags: DigestTags
    ) -> None:
        """`put`: stores the bytes."""
        self.content = content
        self.stored: Content | None = None
        """The content as it was stored; None before."""
        self._put = put
        self._tags = tags

    async def store(self) -> None:
        """Store the bytes, unless they are stored already. Raises BlobChangedError if their tag
        differs from the planned one, and the errors of `PhysicalStorage.put`."""
        if self.stored is None:
            self.stored = await self._put()
        if self.stored != self.content:
            self._tags.distrust()
            raise BlobChangedError(
                "the store gave the object another entity tag than the digest of its bytes",
                path=self.content.physical,
            )


def _digest(data: Buffer) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
