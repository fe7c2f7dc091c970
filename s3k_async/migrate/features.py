"""Features in a volume that was made without them: their flags in its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.config import VolumeConfig
from s3k_async.errors import ReadOnlyVolumeError
from s3k_async.migrate.bucket_count import count_buckets, suspend_counters
from s3k_async.model import Feature
from s3k_async.namespace.due_index import begin_index
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import LOCK, RECORD_KEY, with_needed, write_tag
from s3k_async.volumes.claims import rewrite
from s3k_async.volumes.exclusive_volume import exclusive_volume
from s3k_async.volumes.volume import open_volume

__all__ = ["enable_features"]


async def enable_features(
    config: VolumeConfig,
    features: Sequence[Feature],
    *,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
) -> tuple[Feature, ...]:
    """Add features to a volume, with those that they need, and return those that it did not have.

    `extents`: files can be appended to and changed in place. `attributes`: entries can have a mode,
    an owner and user metadata, and be read-only. `uploads`: multipart uploads, which need extents.
    `rules`: lifecycle rules; `permissions`: mode bits are evaluated; both need attributes.
    `counters`: the objects and bytes of buckets are counted. All of them are counted by this call,
    and again if the volume has the feature. If that fails, as for a damaged item, the volume has
    the feature and is not locked, and its buckets are listed until this call is repeated.
    Clients of versions without a feature cannot open the volume any more. Those that have it open
    are waited for; all others must open it again, too (see `txn.volume_lock`). An interrupted call
    leaves the volume locked; the same call again finishes it.

    Raises ReadOnlyVolumeError (kind `s3k-1.0`), BusyError, PermissionDeniedError (the table's tag
    or the mark of the data location cannot be written), and the services' errors.
    """
    features = with_needed(features)
    opened = await open_volume(config, runtime=runtime, session=session, locked=True)
    try:
        if opened.read_only:
            raise ReadOnlyVolumeError("the volume is read-only", path=opened.record.name)
        item = await opened.items.get(RECORD_KEY)
        added = tuple(each for each in features if each not in opened.record.flags)
        is_unlocked = item is not None and LOCK not in item
        is_done = not added and is_unlocked and "counters" not in features
    finally:
        await opened.close()
    if is_done:
        return ()
    lock = VolumeLock("migration", " ".join(sorted(features)), runtime)
    async with exclusive_volume(config, lock, runtime=runtime, session=session) as volume:
        record = volume.record
        others = (flag for flag in record.flags if flag not in features)
        target = replace(record, flags=(*others, *features))
        target.to_tag()  # checked before the first change
        await lock.wait_for_clients_to_stop()
        lock.check()
        lock.touched = True
        if "rules" in added:
            await begin_index(volume.items, runtime)
        if "counters" in features:
            await suspend_counters(volume)
        flags = " ".join(target.flags)
        await lock.change(volume.items, {"flags": flags})
        await write_tag(volume.table, target, runtime, volume.config.tuning.retry.write)
        await rewrite(volume.place, record.volume_id, {"flags": flags})
        if "counters" in features:
            # The volume is complete, but for its counters: a failure leaves it unlocked.
            lock.touched = False
            await count_buckets(volume, lock.check)
    return added
