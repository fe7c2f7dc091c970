"""The overrides of the tier policy in the metadata of files, from the index of metadata."""

from __future__ import annotations

from s3k_async.bulk.entry_attributes import metadata_pages
from s3k_async.listing.listings import Filter
from s3k_async.model import ROOT
from s3k_async.storage.extents import physical_keys
from s3k_async.storage.tier_policy import TIER, Tier, tier_of
from s3k_async.volumes.volume import Volume

__all__ = ["tier_overrides"]


async def tier_overrides(volume: Volume) -> dict[str, Tier]:
    """The override of each physical object of a file that has one, by key. No request is sent in a
    volume without attributes; else as many as a search by metadata sends: a Query for each
    partition of the index, and a batched read for each hundred files with an override. Files in the
    trash have none, nor may those have that are renamed meanwhile.

    Raises PermissionDeniedError (in a volume with permissions, for any user but the superuser).
    """
    volume.store.access.require_superuser("read the tiers of files", volume.record.name)
    found: dict[str, Tier] = {}
    if not volume.record.attributes:
        return found
    async for page in metadata_pages(volume, TIER, ROOT, Filter()):
        for status in page:
            tier = tier_of(status.attributes.metadata, status.path) if status.is_file else None
            if tier is not None:
                found |= dict.fromkeys(physical_keys(status.physical), tier)
    return found
