"""A hot data location in a volume that was made without one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.config import VolumeConfig
from s3k_async.errors import ReadOnlyVolumeError, UnsupportedError, VolumeMismatchError
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import LOCK, RECORD_KEY, TIERS, write_tag
from s3k_async.volumes.claims import rewrite
from s3k_async.volumes.connections import VolumeConnections
from s3k_async.volumes.creation import claim_hot, hot_text
from s3k_async.volumes.exclusive_volume import exclusive_volume
from s3k_async.volumes.volume import open_volume

__all__ = ["add_hot_location"]


async def add_hot_location(
    config: VolumeConfig,
    hot: str,
    *,
    on_this_machine: bool = False,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
) -> bool:
    """Add a hot location to a volume; whether it had none.

    Existing objects stay in the data location, which is the cold one from then on. Clients of
    versions without tiers cannot open the volume any more. Those that have it open are waited for;
    all others must open it again, too (see `txn.volume_lock`). An interrupted call leaves the
    volume locked; the same call again finishes it. `on_this_machine` as of
    `volumes.creation.hot_text`.

    Raises ConfigError (also if the location does not fit into the table's tag, or is the data
    location under another name),
    VolumeMismatchError (the volume has another hot location), VolumeExistsError (the location is
    another volume's), UnsupportedError (a volume without a scope), ReadOnlyVolumeError (kind
    `s3k-1.0`), BusyError, and the services' errors.
    """
    opened = await open_volume(config, runtime=runtime, session=session, locked=True)
    try:
        record, where = opened.record, config.where
        if opened.read_only:
            raise ReadOnlyVolumeError("the volume is read-only", path=record.name)
        if not record.scope:
            raise UnsupportedError(
                "the volume was made before its keys had a prefix of their own, and cannot have a "
                "hot location: dump it, and load the dump into a new volume",
                path=where,
            )
        text = hot_text(opened.config, hot, on_this_machine=on_this_machine)
        if record.hot and record.hot != text:
            raise VolumeMismatchError(
                f"the volume has the hot location {record.hot}, not {text}", path=where
            )
        item = await opened.items.get(RECORD_KEY)
        if record.hot and item is not None and LOCK not in item:
            return False
    finally:
        await opened.close()
    added = not record.hot
    lock = VolumeLock("migration", f"hot {text}", runtime)
    async with exclusive_volume(config, lock, runtime=runtime, session=session) as volume:
        flags = (*(flag for flag in volume.record.flags if flag != TIERS), TIERS)
        target = replace(volume.record, flags=flags, hot=text)
        target.to_tag()  # checked before the first change
        await lock.wait_for_clients_to_stop()
        lock.check()
        # A location that cannot be used leaves the volume unlocked, also after an interruption:
        # nothing was changed before the record.
        lock.touched = bool(volume.record.hot)
        async with AsyncExitStack() as stack:
            connections = VolumeConnections(volume.config, runtime, session, stack)
            await claim_hot(connections, target)
        lock.touched = True
        changed: dict[str, str | int | bool] = {"flags": " ".join(flags), "hot": text}
        await lock.change(volume.items, changed)
        await write_tag(volume.table, target, runtime, volume.config.tuning.retry.write)
        await rewrite(volume.place, target.volume_id, dict(changed))
    return added
