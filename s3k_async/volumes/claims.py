"""The mark a volume leaves where its bytes and its log are, so that no second volume moves in.

Two volumes that shared a place would take each other's bytes for garbage, and destroying one would empty the other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final

from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    NotAVolumeError,
    S3kError,
    VolumeExistsError,
)
from s3k_async.stores.blobs import BlobStore

__all__ = ["CLAIM", "claim", "owner_of", "read_claim", "renew", "take_over"]

_LOG = logging.getLogger(__name__)

CLAIM: Final = "s3k-volume.json"
"""Key of the mark. Physical keys begin with a hexadecimal digit, log keys with a word and `/`."""
_MOST: Final = 64 * 1024
"""Bytes of a mark that are read."""


async def claim(
    blobs: BlobStore, volume_id: str, name: str, table: str, *, layout: Mapping[str, object] | None = None
) -> str:
    """Mark a place as a volume's; the id it is marked with. `layout`: fields of the volume's record that the mark keeps
    for the day on which the table is lost.

    That is an earlier id if the place was marked for the same table, by an initialisation that did not finish or that
    is under way. Raises VolumeExistsError when the place is another table's.
    """
    document = {"format": 1, "volume_id": volume_id, "name": name, "table": table, **(layout or {})}
    data = json.dumps(document).encode()
    try:
        await blobs.put(CLAIM, data, if_absent=True)
    except BlobExistsError as error:
        found = await read_claim(blobs)
        if found is None:
            return await claim(blobs, volume_id, name, table, layout=layout)
        if found.get("table") != table:
            raise VolumeExistsError(
                f"the place belongs to the volume {found.get('name')!r} of table {found.get('table')!r}; give another"
                " bucket, prefix or directory",
                path=blobs.uri(CLAIM),
            ) from error
        return str(found["volume_id"])
    return volume_id


async def take_over(blobs: BlobStore, volume_id: str, name: str, table: str) -> None:
    """Mark a place with exactly this id, over what an unfinished initialisation for the same table left."""
    if await claim(blobs, volume_id, name, table) == volume_id:
        return
    info = await blobs.head(CLAIM)
    data = json.dumps({"format": 1, "volume_id": volume_id, "name": name, "table": table}).encode()
    try:
        await blobs.put(CLAIM, data, if_match=info.etag if info else None, if_absent=info is None)
    except (BlobChangedError, BlobExistsError):
        await take_over(blobs, volume_id, name, table)


async def renew(blobs: BlobStore, volume_id: str, layout: Mapping[str, object]) -> None:
    """Tell a place of the volume that its layout changed. The volume works without that, so a failure is only logged:
    what the mark says then is what a restore of a lost table begins with."""
    try:
        info = await blobs.head(CLAIM)
        found = await read_claim(blobs)
        if info is not None and found is not None and found["volume_id"] == volume_id:
            await blobs.put(CLAIM, json.dumps({**found, **layout}).encode(), if_match=info.etag)
    except S3kError as error:
        _LOG.warning("the mark %s could not be renewed: %s", blobs.uri(CLAIM), error)


async def owner_of(blobs: BlobStore) -> str | None:
    """The id of the volume that a place is marked for. Raises NotAVolumeError for a mark that cannot be read."""
    found = await read_claim(blobs)
    return None if found is None else str(found["volume_id"])


async def read_claim(blobs: BlobStore) -> dict[str, object] | None:
    """What a place's mark says, `volume_id` for certain; None without one. Raises NotAVolumeError if it is damaged."""
    try:
        data = await blobs.get(CLAIM, 0, _MOST)  # one that is longer is cut, and damaged by that
    except BlobNotFoundError:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAVolumeError("the mark of a volume is damaged", path=blobs.uri(CLAIM)) from error
    if not isinstance(found, dict) or not isinstance(found.get("volume_id"), str):
        raise NotAVolumeError("the mark of a volume is damaged", path=blobs.uri(CLAIM))
    return found
