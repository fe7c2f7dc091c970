"""The storage of the locations of an open volume."""

from __future__ import annotations

from s3k_async._core.retry import retry
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.storage_space import StorageInfo
from s3k_async.volumes import Volume

__all__ = ["storage_info"]


async def storage_info(volume: Volume) -> StorageInfo:
    """The storage of the table, the data, the log and the hot location. Raises the services'
    errors."""
    hot = volume.blobs.hot if isinstance(volume.blobs, TieredBlobs) else None
    policy = volume.config.tuning.retry.read
    return StorageInfo(
        table=await retry(volume.table.space, policy, volume.store.runtime),
        data=await volume.place.space(),
        log=None if volume.log_blobs is None else await volume.log_blobs.space(),
        hot=None if hot is None else await hot.space(),
    )
