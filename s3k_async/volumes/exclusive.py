"""A volume for one client alone: see `metadata.exclusive`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from s3k_async.config import VolumeConfig
from s3k_async.errors import UnsupportedError, VolumeNotFoundError
from s3k_async.metadata.exclusive import ExclusiveLock
from s3k_async.requests import RequestCounter
from s3k_async.sources import SYSTEM, Sources
from s3k_async.volumes.adapters import table_text
from s3k_async.volumes.creation import init_volume
from s3k_async.volumes.opening import Volume, open_volume

__all__ = ["exclusive_volume"]


@asynccontextmanager
async def exclusive_volume(
    config: VolumeConfig,
    lock: ExclusiveLock,
    *,
    create: bool = False,
    made: VolumeConfig | None = None,
    adopting: bool = False,
    sources: Sources = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
) -> AsyncIterator[Volume]:
    """A volume that nobody else can open for the time of the body. `lock.touched` must be set
    before anything is changed: then an error, or the death of the process, leaves the volume locked
    until the work is finished.

    Before the first change `lock.quiet` has to be awaited. `create`: make the volume if it does not
    exist, with the settings `made` if they are others, and `adopting` as of `init_volume`.

    Raises BusyError (somebody else has the lock, or other work was interrupted), and what opening
    raises.
    """
    opened = partial(
        open_volume,
        config,
        sources=sources,
        session=session,
        counter=counter,
        locked=True,
    )
    try:
        volume = await opened()
    except VolumeNotFoundError:
        if not create:
            raise
        await init_volume(
            made or config,
            adopting=adopting,
            lock=lock,
            sources=sources,
            session=session,
        )
        lock.alone = True
        volume = await opened()
    try:
        if volume.read_only:
            raise UnsupportedError(
                "a volume of S3-FileSystem 1.0 cannot be locked", path=table_text(config.table)
            )
        if not lock.alone:
            await lock.take(volume.items, volume.record, table_text(config.table))
        async with lock.held(volume.items):
            yield volume
    finally:
        await volume.close()
