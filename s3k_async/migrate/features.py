"""Features of a volume that was made by a version without them: flags in its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.config import VolumeConfig
from s3k_async.errors import ReadOnlyVolumeError
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import EXTENTS, LOCK, RECORD_KEY, UPLOADS, write_tag
from s3k_async.volumes.claims import rewrite
from s3k_async.volumes.exclusive_volume import exclusive_volume
from s3k_async.volumes.volume import open_volume

__all__ = ["Feature", "enable_feature"]

Feature: TypeAlias = Literal["extents", "uploads"]
"""`extents`: files can be appended to and changed in place. `uploads`: multipart uploads, whose
parts become extents."""

FLAGS_OF: Final[Mapping[Feature, tuple[str, ...]]] = {
    "extents": (EXTENTS,),
    "uploads": (EXTENTS, UPLOADS),
}
"""The flags that a feature needs."""


async def enable_feature(
    config: VolumeConfig,
    feature: Feature,
    *,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
) -> bool:
    """Enable a feature of a volume; False if it is enabled already.

    Clients of versions without the feature cannot open the volume any more. Those that have it open
    are waited for; all others must open it again, too (see `txn.volume_lock`). An interrupted call
    leaves the volume locked; the same call again finishes it.

    Raises ReadOnlyVolumeError (kind `s3k-1.0`), BusyError, PermissionDeniedError (the table's tag
    or the mark of the data location cannot be written), and the services' errors.
    """
    needed = FLAGS_OF[feature]
    opened = await open_volume(config, runtime=runtime, session=session, locked=True)
    try:
        if opened.read_only:
            raise ReadOnlyVolumeError("the volume is read-only", path=opened.record.name)
        item = await opened.items.get(RECORD_KEY)
        is_done = set(needed) <= set(opened.record.flags) and item is not None and LOCK not in item
    finally:
        await opened.close()
    if is_done:
        return False
    lock = VolumeLock("migration", feature, runtime)
    async with exclusive_volume(config, lock, runtime=runtime, session=session) as volume:
        record = volume.record
        flags = (*(flag for flag in record.flags if flag not in needed), *needed)
        target = replace(record, flags=flags)
        target.to_tag()  # checked before the first change
        await lock.wait_for_clients_to_stop()
        lock.check()
        lock.touched = True
        await lock.change(volume.items, {"flags": " ".join(flags)})
        await write_tag(volume.table, target, runtime, volume.config.tuning.retry.write)
        await rewrite(volume.place, record.volume_id, {"flags": " ".join(flags)})
    return True
