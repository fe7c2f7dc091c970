"""The marks of volumes' locations, by which a location inside another one is found.

Only a volume without a scope, of an earlier version, can have one among its own objects.
"""

from __future__ import annotations

from typing import Final

from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all

__all__ = ["CLAIM", "is_inside_another", "locations_in"]

CLAIM: Final = "s3k-volume.json"
"""Key of the mark, below the location's root."""


async def locations_in(blobs: BlobStore) -> tuple[str, ...]:
    """The prefixes in a location that are locations of other volumes, by their marks."""
    return tuple(
        [
            info.key.removesuffix(CLAIM)
            async for info in list_all(blobs)
            if info.key.endswith(f"/{CLAIM}")
        ]
    )


async def is_inside_another(blobs: BlobStore, key: str) -> bool:
    """Whether a key is below one of the `locations_in` a location: one request for each of its
    directories, from the root."""
    end = key.find("/")
    while end != -1:
        if await blobs.head(key[: end + 1] + CLAIM) is not None:
            return True
        end = key.find("/", end + 1)
    return False
