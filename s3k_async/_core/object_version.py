"""Version ids of adopted objects, in the checksum field of an entry.

The content of a file is identified by its checksum or, for an adopted object of a versioned bucket,
whose data is not read, by the version id from the service:

    xxh128:<32 hex digits>      the checksum
    version:<version id>        the version of the adopted object

Clients without support for the second form compare only the entity tag.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION_PREFIX", "as_version", "digest_in", "version_in"]

VERSION_PREFIX: Final = "version:"


def as_version(version: str) -> str:
    """The field for a version id; empty for none."""
    return VERSION_PREFIX + version if version else ""


def version_in(checksum: str) -> str:
    """The version id in the field; empty for none."""
    return checksum[len(VERSION_PREFIX) :] if checksum.startswith(VERSION_PREFIX) else ""


def digest_in(checksum: str) -> str:
    """The checksum in the field; empty for none."""
    return "" if checksum.startswith(VERSION_PREFIX) else checksum
