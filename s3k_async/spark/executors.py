"""The client of a Spark worker process: one for each volume, however many tasks the process runs.

Spark forks workers from a daemon that imports none of this, and uses a worker again for later tasks. So a client is
made in the worker by the first task that needs it and stays for the next one. A worker ends without running exit
handlers: whatever was put off is therefore waited for at the end of each task. A task that is killed takes its worker
along; the leases of what it had begun run out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

from s3k_async.config import VolumeConfig
from s3k_async.settings import with_local_secrets
from s3k_async.sync import S3kSyncClient

__all__ = ["client", "each_partition"]

T = TypeVar("T")
Row = TypeVar("Row")

Work: TypeAlias = Callable[[S3kSyncClient, Iterator[Row]], Iterable[T]]
"""What a task does with its rows."""

_clients: Final[dict[tuple[int, VolumeConfig], S3kSyncClient]] = {}
"""By process id, since a child must not use what its parent had opened, and configuration as it was shipped."""


def client(config: VolumeConfig) -> S3kSyncClient:
    """The open client of this process for a volume: the same at each call, never to be closed by the caller.

    `config` as it arrives in the task: without secrets, which are looked for here. Raises as `S3kSyncClient` does when
    it opens.
    """
    key = os.getpid(), config
    found = _clients.get(key)
    if found is None:
        # Before it is opened: of two threads that come at the same time, both open the same one.
        found = _clients.setdefault(key, S3kSyncClient(config=with_local_secrets(config)))
        found.open_volume()
    return found


def each_partition(config: VolumeConfig, work: Work[Row, T]) -> Callable[[Iterable[Row]], Iterator[T]]:
    """What `RDD.mapPartitions`, `DataFrame.mapInArrow` and their like take: `work(client, rows)` in each task.

    `work` runs again when Spark repeats a task, also at the same time as before (speculation): what it changes must be
    right when it is done twice. Its rows go on as they come.
    """

    def of_partition(rows: Iterable[Row]) -> Iterator[T]:
        fs = client(config)
        try:
            yield from work(fs, iter(rows))
        finally:
            fs._finish_deferred()

    return of_partition
