"""Version ids of adopted objects, in the field for the checksum of an entry.

The bytes of a file are identified by their checksum, or, for an adopted object of a versioned
bucket, whose bytes are not read, by the version id that the service gave them:

    xxh128:<32 hex digits>      the checksum
    version:<version id>        the version of the adopted object

Clients that do not know the second form compare the entity tag alone.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION_PREFIX", "as_version", "digest_in", "version_in"]

VERSION_PREFIX: Final = "version:"


def as_version(version: str) -> str:
    """A version id in the form of the field; empty for none."""
    return VERSION_PREFIX + version if version else ""


def version_in(checksum: str) -> str:
    """The version id in the field; empty for none."""
    return checksum[len(VERSION_PREFIX) :] if checksum.startswith(VERSION_PREFIX) else ""


def digest_in(checksum: str) -> str:
    """The checksum in the field; empty for none."""
    return "" if checksum.startswith(VERSION_PREFIX) else checksum
