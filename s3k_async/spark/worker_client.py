"""The client of a Spark worker process: one for each volume, shared by all tasks of the process.

Spark forks workers from a daemon that imports none of this, and uses a worker again for later
tasks. So the first task that needs a client creates it in the worker, and later tasks use it again.
A worker ends without running exit handlers: deferred requests are therefore awaited at the end of
each task. A task that is killed ends its worker; the leases of its changes expire.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_session import on_client
from s3k_async.client import volume_of
from s3k_async.config import VolumeConfig
from s3k_async.errors import VolumeMismatchError, VolumeNotFoundError
from s3k_async.settings import with_local_secrets
from s3k_async.txn.volume_record import RECORD_KEY, VolumeRecord
from s3k_async.volumes import Volume

__all__ = ["Work", "client", "each_partition", "each_value", "on_volume"]

T = TypeVar("T")
Row = TypeVar("Row")

Work: TypeAlias = Callable[[S3kSyncClient, Iterator[Row]], Iterable[T]]
"""The work of a task with its rows."""

_clients: Final[dict[tuple[int, VolumeConfig], S3kSyncClient]] = {}
"""By process id, since a child must not use connections of its parent, and by shipped
configuration."""
_checks: Final[dict[tuple[int, VolumeConfig], threading.Lock]] = {}
"""Held while the client of the same key is checked, and closed if its volume has changed, so that
no other thread reopens or closes it meanwhile."""


def client(config: VolumeConfig) -> S3kSyncClient:
    """The open client of this process for a volume: the same at each call, never to be closed by
    the caller; a new one if the volume was loaded, restored, resharded or created again since.

    `config` as shipped to the task: without secrets, which are resolved here. Raises as
    `S3kSyncClient` does when it opens.
    """
    key = os.getpid(), config
    with _checks.setdefault(key, threading.Lock()):
        found = _clients.get(key)
        if found is not None:
            found.open_volume()
            if _is_current(found):
                return found
            del _clients[key]
            found.close()
    # Before it is opened: two concurrent threads then open the same client.
    found = _clients.setdefault(key, S3kSyncClient(config=with_local_secrets(config)))
    found.open_volume()
    return found


def each_partition(
    config: VolumeConfig, work: Work[Row, T]
) -> Callable[[Iterable[Row]], Iterator[T]]:
    """A function for `RDD.mapPartitions`, `DataFrame.mapInArrow` and similar: calls `work(client,
    rows)` in each task.

    `work` runs again when Spark repeats a task, also at the same time as before (speculation): its
    changes must be idempotent. Its rows are passed on as they arrive.
    """

    def of_partition(rows: Iterable[Row]) -> Iterator[T]:
        fs = client(config)
        try:
            yield from work(fs, iter(rows))
        finally:
            # A client that `work` has closed has already waited for the log.
            if not fs.closed:
                on_volume(fs, lambda volume: volume.log.drained())

    return of_partition


def on_volume(fs: S3kSyncClient, call: Callable[[Volume], Awaitable[T]]) -> T:
    """The result of a coroutine over the open volume of a client."""
    return on_client(fs, lambda client: call(volume_of(client)))


def each_value(
    fs: S3kSyncClient, pages: Callable[[Volume], AsyncIterator[Sequence[T]]]
) -> Iterator[T]:
    """The values in the pages that an asynchronous generator yields of the open volume of a
    client."""
    return fs._iterate(lambda client: pages(volume_of(client)))  # noqa: SLF001 - hidden from users


def _is_current(opened: S3kSyncClient) -> bool:
    """Whether the volume is unchanged since the client opened it."""

    async def looked(volume: Volume) -> bool:
        record = volume.record
        if record.kind != "native":
            return True
        item = await volume.items.get(RECORD_KEY)
        if item is None:
            return False
        stored = VolumeRecord.from_item(item, record.name)
        return (stored.volume_id, stored.epoch) == (record.volume_id, record.epoch)

    try:
        return on_volume(opened, looked)
    except (VolumeMismatchError, VolumeNotFoundError):
        return False
