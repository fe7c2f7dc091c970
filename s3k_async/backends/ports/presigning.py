"""An optional port of blob stores: URLs by which others read a blob without credentials."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

__all__ = ["LONGEST_PRESIGNED", "PresignedMethod", "Presigner"]

LONGEST_PRESIGNED = 7 * 24 * 3600
"""Seconds for which a signature of version 4 in a URL can be valid."""
PresignedMethod: TypeAlias = Literal["GET", "HEAD"]


@runtime_checkable
class Presigner(Protocol):
    """Optional for a BlobStore: signatures in URLs."""

    async def presign(self, key: str, seconds: int, method: PresignedMethod) -> str:
        """A URL that reads the blob for `seconds` (1 to LONGEST_PRESIGNED) by this HTTP method,
        with the permissions of the store's credentials, or until those expire.

        No request is sent, so the blob may be absent. Raises UnsupportedError, CredentialsError,
        ConfigError, InvalidPathError.
        """
