"""An optional port of blob stores: URLs by which others read a blob without credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, Self, TypeAlias, runtime_checkable

__all__ = ["LONGEST_PRESIGNED", "PresignedMethod", "PresignedUrl", "Presigner"]

LONGEST_PRESIGNED = 7 * 24 * 3600
"""Seconds for which a signature of version 4 in a URL can be valid."""
PresignedMethod: TypeAlias = Literal["GET", "HEAD"]


class PresignedUrl(str):
    """A signed URL. A request for it must send the `headers`, which are part of the signature: none
    but for an object that is encrypted with a customer key, which they contain."""

    __slots__ = ("headers",)

    headers: Mapping[str, str]

    def __new__(cls, url: str, headers: Mapping[str, str] | None = None) -> Self:
        made = super().__new__(cls, url)
        made.headers = headers or {}
        return made


@runtime_checkable
class Presigner(Protocol):
    """Optional for a BlobStore: signatures in URLs."""

    async def presign(self, key: str, seconds: int, method: PresignedMethod) -> PresignedUrl:
        """A URL that reads the blob for `seconds` (1 to LONGEST_PRESIGNED) by this HTTP method,
        with the permissions of the store's credentials, or until those expire.

        No request is sent, so the blob may be absent. Raises UnsupportedError, CredentialsError,
        ConfigError, InvalidPathError.
        """
