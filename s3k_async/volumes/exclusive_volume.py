"""A volume opened under the volume lock: see `txn.volume_lock`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.metering import RequestCounter
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.config import VolumeConfig
from s3k_async.errors import UnsupportedError, VolumeNotFoundError
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.volumes.connections import VolumeConnections
from s3k_async.volumes.creation import init_volume
from s3k_async.volumes.volume import Volume, open_volume

__all__ = ["exclusive_volume"]


@asynccontextmanager
async def exclusive_volume(
    config: VolumeConfig,
    lock: VolumeLock,
    *,
    create: bool = False,
    made: VolumeConfig | None = None,
    adopting: bool = False,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
) -> AsyncIterator[Volume]:
    """A volume under the volume lock for the body. `lock.touched` must be set before the first
    change: then an error, or a crash of the process, leaves the volume locked until the work is
    finished.

    Before the first change `lock.wait_for_clients_to_stop` has to be awaited. `create`: create a
    missing volume, with the settings `made` if given, and `adopting` as of `init_volume`.

    Raises BusyError (another client has the lock, or other work was interrupted), and the errors of
    opening.
    """
    opened = partial(
        open_volume,
        config,
        runtime=runtime,
        session=session,
        counter=counter,
        locked=True,
    )
    try:
        volume = await opened()
    except VolumeNotFoundError:
        if not create:
            raise
        try:
            await init_volume(
                made or config,
                adopting=adopting,
                lock=lock,
                runtime=runtime,
                session=session,
            )
            lock.alone = True
            volume = await opened()
        except BaseException:
            await to_the_end(partial(_unlock, made or config, lock, runtime, session))
            raise
    try:
        if volume.read_only:
            raise UnsupportedError(
                "a volume of S3-FileSystem 1.0 cannot be locked", path=config.where
            )
        if not lock.alone:
            await lock.take(volume.items, volume.record, config.where)
        async with lock.held(volume.items):
            yield volume
    finally:
        await volume.close()


async def _unlock(
    config: VolumeConfig, lock: VolumeLock, runtime: Runtime, session: object | None
) -> None:
    """Release the lock of a volume whose creation with one was interrupted, perhaps before its
    record was written."""
    async with AsyncExitStack() as stack:
        items, _ = VolumeConnections(config, runtime, session, stack).table()
        await lock.abandon(items)
